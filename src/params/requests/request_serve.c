/* Requests from other nodes: rows owned here are accessed, others are forwarded to the nodes that
 * the rows moved to. Everything runs under the lock, so that no row moves meanwhile. */
#include "params/requests/request_serve.h"
#include "params/requests/request_complete.h"
#include "params/rows/table_state.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_AHEAD = 16 };

typedef struct inquiry {
    lig_params *node;
    const ligi_params_message *message;
    const ligi_params_parts *parts;
    ligi_serve_scratch *scratch;
    uint64_t elements; /* of all its rows */
    uint32_t mine;     /* scratch->mine: its length */
    uint32_t others;   /* scratch->others */
} inquiry;

void ligi_serve_scratch_fini(ligi_serve_scratch *scratch)
{
    free(scratch->keys);
    free(scratch->entries);
    free(scratch->noted);
    free(scratch->positions);
    free(scratch->mine);
    free(scratch->others);
    free(scratch->done);
    *scratch = (ligi_serve_scratch){0};
}

static lig_status reserve(ligi_serve_scratch *scratch, size_t count)
{
    size_t room = 256;
    if (count <= scratch->room)
        return LIG_OK;
    while (room < count)
        room *= 2;
    ligi_serve_scratch_fini(scratch);
    LIG_TRY(ligi_calloc(&scratch->keys, room, sizeof *scratch->keys, "a request"));
    LIG_TRY(ligi_calloc(&scratch->entries, room, sizeof *scratch->entries, "a request"));
    LIG_TRY(ligi_calloc(&scratch->noted, room, sizeof *scratch->noted, "a request"));
    LIG_TRY(ligi_calloc(&scratch->positions, room, sizeof *scratch->positions, "a request"));
    LIG_TRY(ligi_calloc(&scratch->mine, room, sizeof *scratch->mine, "a request"));
    LIG_TRY(ligi_calloc(&scratch->others, room, sizeof *scratch->others, "a request"));
    LIG_TRY(ligi_calloc(&scratch->done, room, sizeof *scratch->done, "a request"));
    scratch->room = room;
    return LIG_OK;
}

/* --- responses --- */

/* Sends to the requesting node, which is this one if its request was forwarded back to it. */
static lig_status deliver(const inquiry *call, ligi_params_outgoing *outgoing)
{
    lig_params *node = call->node;
    ligi_params_message *message = &outgoing->message;
    message->kind = LIGI_PARAMS_RESPONSE;
    message->verb = call->message->verb;
    message->origin = call->message->origin;
    message->worker = call->message->worker;
    message->ticket = call->message->ticket;
    if (message->origin != node->rank)
        return ligi_params_peer_send(&node->peers[message->origin], outgoing);
    ligi_params_parts parts = {0};
    if (message->flags & LIGI_PARAMS_FAILED) {
        parts.sentence = outgoing->tail;
        parts.sentence_bytes = (uint32_t)outgoing->tail_bytes;
    } else {
        ligi_params_message_open(message, message, sizeof *message,
                                 outgoing->buffer ? outgoing->buffer->data : NULL,
                                 outgoing->buffer ? outgoing->buffer->bytes : 0, &parts);
    }
    lig_status status = ligi_params_request_answered(node, node->rank, message, &parts);
    ligi_send_buffer_drop(node, outgoing->buffer);
    return status;
}

/* Fails the whole request for its worker; `count` of its keys get no other response. */
static lig_status refuse(const inquiry *call, lig_status status, uint32_t count)
{
    const char *sentence = lig_error_text();
    size_t bytes = strnlen(sentence, LIGI_PARAMS_SENTENCE_MAX);
    ligi_params_outgoing outgoing = {
        .message = {.flags = LIGI_PARAMS_FAILED, .count = count, .number = (uint32_t)status},
        .tail = sentence,
        .tail_bytes = bytes};
    return deliver(call, &outgoing);
}

/* If the node asked another one first, the response says where the rows are. */
static uint32_t answer_flags(const inquiry *call)
{
    uint32_t flags = call->message->hops > 0 ? LIGI_PARAMS_POSITIONS | LIGI_PARAMS_MOVES : 0;
    if (call->message->verb == LIGI_PULL)
        flags |= LIGI_PARAMS_POSITIONS | LIGI_PARAMS_VALUES;
    return flags;
}

/* `count` of scratch->mine from `first` on, without their rows. */
static lig_status begin_answer(const inquiry *call, uint32_t first, uint32_t count,
                               uint64_t rows_bytes, ligi_params_outgoing *outgoing)
{
    lig_params *node = call->node;
    *outgoing = (ligi_params_outgoing){
        .message = {.kind = LIGI_PARAMS_RESPONSE, .flags = answer_flags(call), .count = count}};
    uint64_t front = ligi_params_message_front(&outgoing->message);
    if (front + rows_bytes == 0)
        return LIG_OK;
    LIG_TRY(ligi_send_buffer_take(node, front + rows_bytes, &outgoing->buffer));
    outgoing->buffer->bytes = front + rows_bytes;
    uint32_t *positions = (uint32_t *)(void *)outgoing->buffer->data;
    uint64_t *moves = (uint64_t *)(void *)(outgoing->buffer->data + LIGI_PAD8(4 * (uint64_t)count));
    for (uint32_t i = 0; i < count; i++) {
        const ligi_miss *one = &call->scratch->mine[first + i];
        positions[i] = call->scratch->positions[one->position];
        if (outgoing->message.flags & LIGI_PARAMS_MOVES)
            moves[i] = ligi_tables_location(node->tables, one->entry).moves;
    }
    if (count % 2)
        positions[count] = 0;
    return LIG_OK;
}

/* Rows for one message, from `first` on: how many, and their elements. */
static uint32_t fit(const inquiry *call, uint32_t first, uint64_t *elements)
{
    const ligi_tables *tables = call->node->tables;
    uint64_t most = LIGI_PARAMS_PAYLOAD_GOOD / ligi_tables_element_bytes(tables);
    uint32_t n = 0;
    *elements = 0;
    for (; first + n < call->mine; n++) {
        uint32_t length = ligi_tables_length(tables, call->scratch->mine[first + n].entry);
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
        ligi_params_outgoing outgoing;
        count = fit(call, first, &elements);
        LIG_TRY(begin_answer(call, first, count, elements * element, &outgoing));
        ligi_batch batch = {.keys = call->scratch->keys,
                            .count = call->message->count,
                            .entries = call->scratch->entries,
                            .misses = call->scratch->done,
                            .miss_count = count,
                            .values = outgoing.buffer->data +
                                      ligi_params_message_front(&outgoing.message)};
        for (uint32_t i = 0; i < count; i++) {
            batch.misses[i] = call->scratch->mine[first + i];
            batch.misses[i].at = at;
            at += ligi_tables_length(node->tables, batch.misses[i].entry);
        }
        ligi_tables_read_misses(node->tables, &batch);
        if (batch.miss_count > 0) {
            ligi_send_buffer_drop(node, outgoing.buffer);
            return lig_fail(LIG_E_INTERNAL, "internal error: an owned row is not in its slot");
        }
        LIG_TRY(deliver(call, &outgoing));
    }
    return LIG_OK;
}

static lig_status answer_write(const inquiry *call)
{
    lig_params *node = call->node;
    ligi_serve_scratch *scratch = call->scratch;
    ligi_params_outgoing outgoing;
    ligi_write_kind kind = call->message->verb == LIGI_SET ? LIGI_WRITE_SET : LIGI_WRITE_PUSH;
    ligi_batch batch = {.keys = scratch->keys,
                        .count = call->message->count,
                        .entries = ligi_tables_hashed(node->tables) ? scratch->entries : NULL,
                        .misses = scratch->done,
                        .noted = scratch->noted,
                        .values = (void *)(uintptr_t)call->parts->rows, /* already read */
                        .lr = call->parts->rates};
    if (call->others == 0) {
        ligi_tables_write(node->tables, kind, &batch);
    } else {
        memcpy(scratch->done, scratch->mine, call->mine * sizeof *scratch->done);
        batch.miss_count = call->mine;
        ligi_tables_write_misses(node->tables, kind, &batch);
    }
    if (batch.miss_count > 0)
        return lig_fail(LIG_E_INTERNAL, "internal error: an owned row is not in its slot");
    if (batch.noted_count > 0)
        ligi_sync_noted(node, NULL, scratch->noted, batch.noted_count);
    for (uint32_t i = 0; call->message->origin != node->rank && i < call->mine; i++)
        ligi_sync_written_by(node, scratch->mine[i].entry, call->message->origin);
    LIG_TRY(begin_answer(call, 0, call->mine, 0, &outgoing));
    return deliver(call, &outgoing);
}

/* --- forwarding --- */

/* `count` of scratch->done, all for one node. */
static lig_status pass_on(const inquiry *call, uint32_t to, uint32_t count, uint64_t rows_bytes)
{
    lig_params *node = call->node;
    const ligi_serve_scratch *scratch = call->scratch;
    uint32_t element = ligi_tables_element_bytes(node->tables);
    ligi_params_outgoing outgoing = {
        .message = *call->message,
        .tail = call->parts->rates,
        .tail_bytes = call->parts->rates ? 8 * (size_t)ligi_tables_count(node->tables) : 0};
    outgoing.message.count = count;
    outgoing.message.hops++;
    uint64_t front = ligi_params_message_front(&outgoing.message);
    LIG_TRY(ligi_send_buffer_take(node, front + rows_bytes, &outgoing.buffer));
    outgoing.buffer->bytes = front + rows_bytes;
    int64_t *keys = (int64_t *)(void *)outgoing.buffer->data;
    uint32_t *positions = (uint32_t *)(void *)(keys + count);
    uint8_t *rows = outgoing.buffer->data + front;
    for (uint32_t i = 0; i < count; i++) {
        const ligi_miss *one = &scratch->done[i];
        keys[i] = scratch->keys[one->position];
        positions[i] = scratch->positions[one->position];
        if (rows_bytes == 0)
            continue;
        size_t bytes = (size_t)ligi_tables_length(node->tables, one->entry) * element;
        memcpy(rows, call->parts->rows + one->at * element, bytes);
        rows += bytes;
    }
    if (count % 2)
        positions[count] = 0;
    node->totals.forwarded += count;
    return ligi_params_peer_send(&node->peers[to], &outgoing);
}

static lig_status lost_row(const inquiry *call, const ligi_miss *one)
{
    (void)lig_fail(LIG_E_INTERNAL, "location of key %lld is unknown",
                   (long long)call->scratch->keys[one->position]);
    return refuse(call, LIG_E_INTERNAL, call->others);
}

/* One message per node that some of the rows moved to. */
static lig_status pass_others(inquiry *call)
{
    lig_params *node = call->node;
    ligi_serve_scratch *scratch = call->scratch;
    uint32_t element = ligi_tables_element_bytes(node->tables);
    while (call->others > 0) {
        uint32_t to = ligi_tables_location(node->tables, scratch->others[0].entry).node;
        uint32_t count = 0, left = 0;
        uint64_t bytes = 0;
        if (to == node->rank || to >= node->node_count ||
            call->message->hops >= LIGI_PARAMS_HOPS_MAX)
            return lost_row(call, &scratch->others[0]);
        for (uint32_t i = 0; i < call->others; i++) {
            const ligi_miss *one = &scratch->others[i];
            if (ligi_tables_location(node->tables, one->entry).node != to) {
                scratch->others[left++] = *one;
                continue;
            }
            scratch->done[count++] = *one;
            bytes += (uint64_t)ligi_tables_length(node->tables, one->entry) * element;
        }
        call->others = left;
        LIG_TRY(pass_on(call, to, count, call->message->verb == LIGI_PULL ? 0 : bytes));
    }
    return LIG_OK;
}

/* --- requests --- */

/* Only the owner answers: a replica may lack earlier writes of the node that asks. */
static void sort_rows(inquiry *call)
{
    const ligi_tables *tables = call->node->tables;
    ligi_serve_scratch *scratch = call->scratch;
    int hashed = ligi_tables_hashed(tables);
    uint32_t uniform = ligi_tables_uniform(tables);
    uint64_t at = 0;
    for (uint32_t i = 0; i < call->message->count; i++) {
        if (!hashed && i + WORDS_AHEAD < call->message->count)
            __builtin_prefetch(&tables->words[scratch->keys[i + WORDS_AHEAD]]);
        ligi_entry entry = hashed ? scratch->entries[i] : (ligi_entry)scratch->keys[i];
        ligi_miss one = {.at = at, .position = i, .entry = entry};
        at += uniform ? uniform : ligi_tables_length(tables, entry);
        if (ligi_word_state(ligi_tables_word(tables, entry)) == LIGI_ROW_OWNED)
            scratch->mine[call->mine++] = one;
        else
            scratch->others[call->others++] = one;
    }
}

lig_status ligi_params_request_serve(ligi_params_peer *peer, const ligi_params_message *message,
                                     const ligi_params_parts *parts)
{
    lig_params *node = peer->node;
    inquiry call = {
        .node = node, .message = message, .parts = parts, .scratch = &node->serve_scratch};
    LIG_TRY(reserve(call.scratch, message->count));
    /* Copied before the check: the peer may be able to change this memory. */
    memcpy(call.scratch->keys, parts->keys, message->count * sizeof *parts->keys);
    memcpy(call.scratch->positions, parts->positions, message->count * sizeof *parts->positions);
    ligi_batch batch = {.keys = call.scratch->keys,
                        .count = message->count,
                        .entries = ligi_tables_hashed(node->tables) ? call.scratch->entries : NULL,
                        .misses = call.scratch->done};
    lig_status status = ligi_tables_resolve(node->tables, &batch, &call.elements);
    if (status != LIG_OK)
        return refuse(&call, status, message->count);
    if (message->verb != LIGI_PULL &&
        parts->rows_bytes != call.elements * ligi_tables_element_bytes(node->tables))
        return lig_fail(LIG_E_CORRUPT, "row length does not match the key");
    sort_rows(&call);
    if (call.mine > 0)
        LIG_TRY(message->verb == LIGI_PULL ? answer_pull(&call) : answer_write(&call));
    return pass_others(&call);
}
