/* Requests of other nodes: what is owned here is done, the rest is passed on to where it went. All
 * of it under the lock, so that no row comes or goes meanwhile. */
#include "params/requests/request_serve.h"
#include "params/requests/request_complete.h"
#include "params/rows/table_state.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_AHEAD = 16 };

typedef struct inquiry {
    lig_params *node;
    const ligi_letter *letter;
    const ligi_parts *parts;
    ligi_desk *desk;
    uint64_t elements; /* of all its rows */
    uint32_t mine;     /* desk->mine: how many */
    uint32_t others;   /* desk->others */
} inquiry;

void ligi_desk_fini(ligi_desk *desk)
{
    free(desk->keys);
    free(desk->entries);
    free(desk->noted);
    free(desk->positions);
    free(desk->mine);
    free(desk->others);
    free(desk->done);
    *desk = (ligi_desk){0};
}

static lig_status reserve(ligi_desk *desk, size_t count)
{
    size_t room = 256;
    if (count <= desk->room)
        return LIG_OK;
    while (room < count)
        room *= 2;
    ligi_desk_fini(desk);
    LIG_TRY(ligi_calloc(&desk->keys, room, sizeof *desk->keys, "a request"));
    LIG_TRY(ligi_calloc(&desk->entries, room, sizeof *desk->entries, "a request"));
    LIG_TRY(ligi_calloc(&desk->noted, room, sizeof *desk->noted, "a request"));
    LIG_TRY(ligi_calloc(&desk->positions, room, sizeof *desk->positions, "a request"));
    LIG_TRY(ligi_calloc(&desk->mine, room, sizeof *desk->mine, "a request"));
    LIG_TRY(ligi_calloc(&desk->others, room, sizeof *desk->others, "a request"));
    LIG_TRY(ligi_calloc(&desk->done, room, sizeof *desk->done, "a request"));
    desk->room = room;
    return LIG_OK;
}

/* --- answers --- */

/* To the node that asked; that can be this one, when what it asked for has come to it. */
static lig_status deliver(const inquiry *call, ligi_post *post)
{
    lig_params *node = call->node;
    ligi_letter *letter = &post->letter;
    letter->kind = LIGI_LETTER_ANSWER;
    letter->verb = call->letter->verb;
    letter->origin = call->letter->origin;
    letter->worker = call->letter->worker;
    letter->ticket = call->letter->ticket;
    if (letter->origin != node->rank)
        return ligi_peer_post(&node->peers[letter->origin], post);
    ligi_parts parts = {0};
    if (letter->flags & LIGI_LETTER_FAILED) {
        parts.sentence = post->tail;
        parts.sentence_bytes = (uint32_t)post->tail_bytes;
    } else {
        ligi_letter_open(letter, letter, sizeof *letter, post->parcel ? post->parcel->data : NULL,
                         post->parcel ? post->parcel->bytes : 0, &parts);
    }
    lig_status status = ligi_ask_answered(node, node->rank, letter, &parts);
    ligi_parcel_drop(node, post->parcel);
    return status;
}

/* The whole request has failed for its worker; `count` of its keys are not answered otherwise. */
static lig_status refuse(const inquiry *call, lig_status status, uint32_t count)
{
    const char *sentence = lig_error_text();
    size_t bytes = strnlen(sentence, LIGI_LETTER_SENTENCE_MAX);
    ligi_post post = {
        .letter = {.flags = LIGI_LETTER_FAILED, .count = count, .number = (uint32_t)status},
        .tail = sentence,
        .tail_bytes = bytes};
    return deliver(call, &post);
}

/* Who asked somebody else first is told where the rows are. */
static uint32_t answer_flags(const inquiry *call)
{
    uint32_t flags = call->letter->hops > 0 ? LIGI_LETTER_POSITIONS | LIGI_LETTER_MOVES : 0;
    if (call->letter->verb == LIGI_PULL)
        flags |= LIGI_LETTER_POSITIONS | LIGI_LETTER_VALUES;
    return flags;
}

/* `count` of desk->mine from `first` on, without their rows. */
static lig_status begin_answer(const inquiry *call, uint32_t first, uint32_t count,
                               uint64_t rows_bytes, ligi_post *post)
{
    lig_params *node = call->node;
    *post = (ligi_post){
        .letter = {.kind = LIGI_LETTER_ANSWER, .flags = answer_flags(call), .count = count}};
    uint64_t front = ligi_letter_front(&post->letter);
    if (front + rows_bytes == 0)
        return LIG_OK;
    LIG_TRY(ligi_parcel_take(node, front + rows_bytes, &post->parcel));
    post->parcel->bytes = front + rows_bytes;
    uint32_t *positions = (uint32_t *)(void *)post->parcel->data;
    uint64_t *moves = (uint64_t *)(void *)(post->parcel->data + LIGI_PAD8(4 * (uint64_t)count));
    for (uint32_t i = 0; i < count; i++) {
        const ligi_miss *one = &call->desk->mine[first + i];
        positions[i] = call->desk->positions[one->position];
        if (post->letter.flags & LIGI_LETTER_MOVES)
            moves[i] = ligi_tables_place(node->tables, one->entry).moves;
    }
    if (count % 2)
        positions[count] = 0;
    return LIG_OK;
}

/* Rows for one letter, from `first` on: how many, and their elements. */
static uint32_t fit(const inquiry *call, uint32_t first, uint64_t *elements)
{
    const ligi_tables *tables = call->node->tables;
    uint64_t most = LIGI_LETTER_PAYLOAD_GOOD / ligi_tables_element_bytes(tables);
    uint32_t n = 0;
    *elements = 0;
    for (; first + n < call->mine; n++) {
        uint32_t length = ligi_tables_length(tables, call->desk->mine[first + n].entry);
        if (n > 0 && *elements + length > most)
            break;
        *elements += length;
    }
    return n;
}

static lig_status answer_pull(const inquiry *call)
{
    lig_params *node = call->node;
    uint32_t element = ligi_tables_element_bytes(node->tables);
    for (uint32_t first = 0, count; first < call->mine; first += count) {
        uint64_t elements, at = 0;
        ligi_post post;
        count = fit(call, first, &elements);
        LIG_TRY(begin_answer(call, first, count, elements * element, &post));
        ligi_batch batch = {.keys = call->desk->keys,
                            .count = call->letter->count,
                            .entries = call->desk->entries,
                            .misses = call->desk->done,
                            .miss_count = count,
                            .values = post.parcel->data + ligi_letter_front(&post.letter)};
        for (uint32_t i = 0; i < count; i++) {
            batch.misses[i] = call->desk->mine[first + i];
            batch.misses[i].at = at;
            at += ligi_tables_length(node->tables, batch.misses[i].entry);
        }
        ligi_tables_read_misses(node->tables, &batch);
        if (batch.miss_count > 0) {
            ligi_parcel_drop(node, post.parcel);
            return lig_fail(LIG_E_INTERNAL, "a row was not where it is");
        }
        LIG_TRY(deliver(call, &post));
    }
    return LIG_OK;
}

static lig_status answer_write(const inquiry *call)
{
    lig_params *node = call->node;
    ligi_desk *desk = call->desk;
    ligi_post post;
    ligi_write_kind kind = call->letter->verb == LIGI_SET ? LIGI_WRITE_SET : LIGI_WRITE_PUSH;
    ligi_batch batch = {.keys = desk->keys,
                        .count = call->letter->count,
                        .entries = ligi_tables_hashed(node->tables) ? desk->entries : NULL,
                        .misses = desk->done,
                        .noted = desk->noted,
                        .values = (void *)(uintptr_t)call->parts->rows, /* they are read */
                        .lr = call->parts->rates};
    if (call->others == 0) {
        ligi_tables_write(node->tables, kind, &batch);
    } else {
        memcpy(desk->done, desk->mine, call->mine * sizeof *desk->done);
        batch.miss_count = call->mine;
        ligi_tables_write_misses(node->tables, kind, &batch);
    }
    if (batch.miss_count > 0)
        return lig_fail(LIG_E_INTERNAL, "a row was not where it is");
    if (batch.noted_count > 0)
        ligi_sync_noted(node, NULL, desk->noted, batch.noted_count);
    for (uint32_t i = 0; call->letter->origin != node->rank && i < call->mine; i++)
        ligi_sync_written_by(node, desk->mine[i].entry, call->letter->origin);
    LIG_TRY(begin_answer(call, 0, call->mine, 0, &post));
    return deliver(call, &post);
}

/* --- passing on --- */

/* `count` of desk->done, all for one node. */
static lig_status pass_on(const inquiry *call, uint32_t to, uint32_t count, uint64_t rows_bytes)
{
    lig_params *node = call->node;
    const ligi_desk *desk = call->desk;
    uint32_t element = ligi_tables_element_bytes(node->tables);
    ligi_post post = {.letter = *call->letter,
                      .tail = call->parts->rates,
                      .tail_bytes =
                          call->parts->rates ? 8 * (size_t)ligi_tables_count(node->tables) : 0};
    post.letter.count = count;
    post.letter.hops++;
    uint64_t front = ligi_letter_front(&post.letter);
    LIG_TRY(ligi_parcel_take(node, front + rows_bytes, &post.parcel));
    post.parcel->bytes = front + rows_bytes;
    int64_t *keys = (int64_t *)(void *)post.parcel->data;
    uint32_t *positions = (uint32_t *)(void *)(keys + count);
    uint8_t *rows = post.parcel->data + front;
    for (uint32_t i = 0; i < count; i++) {
        const ligi_miss *one = &desk->done[i];
        keys[i] = desk->keys[one->position];
        positions[i] = desk->positions[one->position];
        if (rows_bytes == 0)
            continue;
        size_t bytes = (size_t)ligi_tables_length(node->tables, one->entry) * element;
        memcpy(rows, call->parts->rows + one->at * element, bytes);
        rows += bytes;
    }
    if (count % 2)
        positions[count] = 0;
    node->totals.forwarded += count;
    return ligi_peer_post(&node->peers[to], &post);
}

static lig_status lost_row(const inquiry *call, const ligi_miss *one)
{
    (void)lig_fail(LIG_E_INTERNAL, "it does not know where the row of key %lld is",
                   (long long)call->desk->keys[one->position]);
    return refuse(call, LIG_E_INTERNAL, call->others);
}

/* One letter for each node that some of the others went to. */
static lig_status pass_others(inquiry *call)
{
    lig_params *node = call->node;
    ligi_desk *desk = call->desk;
    uint32_t element = ligi_tables_element_bytes(node->tables);
    while (call->others > 0) {
        uint32_t to = ligi_tables_place(node->tables, desk->others[0].entry).node;
        uint32_t count = 0, left = 0;
        uint64_t bytes = 0;
        if (to == node->rank || to >= node->node_count ||
            call->letter->hops >= LIGI_LETTER_HOPS_MAX)
            return lost_row(call, &desk->others[0]);
        for (uint32_t i = 0; i < call->others; i++) {
            const ligi_miss *one = &desk->others[i];
            if (ligi_tables_place(node->tables, one->entry).node != to) {
                desk->others[left++] = *one;
                continue;
            }
            desk->done[count++] = *one;
            bytes += (uint64_t)ligi_tables_length(node->tables, one->entry) * element;
        }
        call->others = left;
        LIG_TRY(pass_on(call, to, count, call->letter->verb == LIGI_PULL ? 0 : bytes));
    }
    return LIG_OK;
}

/* --- requests --- */

/* Only the owner answers: a copy may lack what the one who asks has done. */
static void sort_rows(inquiry *call)
{
    const ligi_tables *tables = call->node->tables;
    ligi_desk *desk = call->desk;
    int hashed = ligi_tables_hashed(tables);
    uint32_t uniform = ligi_tables_uniform(tables);
    uint64_t at = 0;
    for (uint32_t i = 0; i < call->letter->count; i++) {
        if (!hashed && i + WORDS_AHEAD < call->letter->count)
            __builtin_prefetch(&tables->words[desk->keys[i + WORDS_AHEAD]]);
        ligi_entry entry = hashed ? desk->entries[i] : (ligi_entry)desk->keys[i];
        ligi_miss one = {.at = at, .position = i, .entry = entry};
        at += uniform ? uniform : ligi_tables_length(tables, entry);
        if (ligi_word_state(ligi_tables_word(tables, entry)) == LIGI_ROW_OWNED)
            desk->mine[call->mine++] = one;
        else
            desk->others[call->others++] = one;
    }
}

lig_status ligi_answer_ask(ligi_peer *peer, const ligi_letter *letter, const ligi_parts *parts)
{
    lig_params *node = peer->node;
    inquiry call = {.node = node, .letter = letter, .parts = parts, .desk = &node->desk};
    LIG_TRY(reserve(call.desk, letter->count));
    /* Copied before they are looked at: they may lie in memory that the peer can change. */
    memcpy(call.desk->keys, parts->keys, letter->count * sizeof *parts->keys);
    memcpy(call.desk->positions, parts->positions, letter->count * sizeof *parts->positions);
    ligi_batch batch = {.keys = call.desk->keys,
                        .count = letter->count,
                        .entries = ligi_tables_hashed(node->tables) ? call.desk->entries : NULL,
                        .misses = call.desk->done};
    lig_status status = ligi_tables_resolve(node->tables, &batch, &call.elements);
    if (status != LIG_OK)
        return refuse(&call, status, letter->count);
    if (letter->verb != LIGI_PULL &&
        parts->rows_bytes != call.elements * ligi_tables_element_bytes(node->tables))
        return lig_fail(LIG_E_CORRUPT, "rows of another length than their keys have");
    sort_rows(&call);
    if (call.mine > 0)
        LIG_TRY(letter->verb == LIGI_PULL ? answer_pull(&call) : answer_write(&call));
    return pass_others(&call);
}
