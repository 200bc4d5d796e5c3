#include "params/snapshot/snapshot_rows.h"

#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/snapshot/snapshot_serve.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/key_home.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS INT64_C(1000000) /* until rows that were being relocated are requested again */

/* --- allocation --- */

void ligi_params_snapshot_rows_fini(ligi_snapshot_rows *rows)
{
    free(rows->keys);
    free(rows->offsets);
    free(rows->order);
    free(rows->here);
    free(rows->given);
    free(rows->bodies);
    free(rows->asking);
    *rows = (ligi_snapshot_rows){0};
}

static lig_status make_room(ligi_snapshot_rows *rows, uint32_t node_count)
{
    size_t count = (size_t)rows->count + 1;
    LIG_TRY(ligi_grow(&rows->keys, &rows->key_room, count, sizeof *rows->keys, "rows"));
    LIG_TRY(ligi_grow(&rows->offsets, &rows->offset_room, count, sizeof *rows->offsets, "rows"));
    LIG_TRY(ligi_grow(&rows->order, &rows->order_room, count, sizeof *rows->order, "rows"));
    LIG_TRY(ligi_grow(&rows->here, &rows->here_room, count, sizeof *rows->here, "rows"));
    LIG_TRY(ligi_grow(&rows->given, &rows->given_room, count, sizeof *rows->given, "rows"));
    if (rows->asking == NULL)
        LIG_TRY(ligi_calloc(&rows->asking, node_count, sizeof *rows->asking, "rows"));
    return LIG_OK;
}

lig_status ligi_params_snapshot_rows_begin(ligi_snapshot_rows *rows, const ligi_snapshot_call *call,
                                           uint64_t unit)
{
    const ligi_snapshot_plan *plan = &call->plan;
    const ligi_tables *tables = call->node->tables;
    int table = ligi_params_snapshot_plan_unit(plan, unit, &rows->number);
    const ligi_snapshot_table *kept = &plan->table[table];
    uint64_t count = kept->rows[rows->number + 1] - kept->rows[rows->number];
    if (count > UINT32_MAX / 2)
        return lig_fail(LIG_E_LIMIT, "too many hashed keys in one block: %llu",
                        (unsigned long long)count);
    rows->plan = plan;
    rows->table = (uint32_t)table;
    rows->unit = unit;
    rows->count = (uint32_t)count;
    rows->found = 0;
    LIG_TRY(make_room(rows, call->node->node_count));
    int64_t first = ligi_tables_offset(tables, rows->table) + (int64_t)kept->rows[rows->number];
    uint64_t at = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        rows->keys[i] = first + i;
        rows->order[i] = i;
        rows->offsets[i] = at;
        at += kept->length ? kept->body_bytes
                           : ligi_params_snapshot_body(
                                 plan, rows->table, ligi_tables_length_of_key(tables, first + i));
    }
    rows->offsets[rows->count] = at;
    return ligi_grow(&rows->bodies, &rows->body_room, at + 1, 1, "rows");
}

uint8_t *ligi_params_snapshot_rows_body(const ligi_snapshot_rows *rows, uint32_t index)
{
    return rows->bodies + rows->offsets[rows->order[index]];
}

uint32_t ligi_params_snapshot_rows_length(const ligi_snapshot_rows *rows, uint32_t index)
{
    const ligi_snapshot_table *kept = &rows->plan->table[rows->table];
    return kept->length ? kept->length
                        : ligi_tables_length_of_key(rows->plan->tables, rows->keys[index]);
}

static size_t body_bytes(const ligi_snapshot_rows *rows, uint32_t index)
{
    return rows->offsets[index + 1] - rows->offsets[index];
}

/* --- gathering --- */

/* Where a received row is stored; NULL: nowhere. */
static uint8_t *place_for(ligi_snapshot_rows *rows, int64_t key, size_t *bytes)
{
    uint32_t at = rows->found;
    if (ligi_tables_hashed(rows->plan->tables)) {
        *bytes = rows->plan->table[rows->table].body_bytes;
        rows->overflow += rows->found == rows->count;
        if (rows->found == rows->count)
            return NULL;
        rows->keys[at] = key;
    } else {
        at = (uint32_t)(key - rows->keys[0]);
        *bytes = body_bytes(rows, at);
        if (rows->here[at])
            return NULL;
    }
    rows->here[at] = 1;
    rows->found++;
    return rows->bodies + rows->offsets[at];
}

lig_status ligi_params_snapshot_rows_arrived(lig_params *node, uint32_t rank,
                                             const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    ligi_snapshot_rows *rows = self->asked;
    if (rows == NULL || content->front.call != self->call || content->front.unit != rows->unit ||
        !rows->asking[rank])
        return LIG_OK; /* for a cancelled request */
    const uint8_t *body = content->bodies;
    uint64_t left = content->body_bytes;
    for (uint32_t i = 0; i < content->front.count; i++) {
        int64_t key = ligi_params_snapshot_message_key(content, i);
        size_t bytes = 0;
        int fits = ligi_tables_table_of_key(node->tables, key) == (int)rows->table;
        if (fits && !ligi_tables_hashed(node->tables))
            fits = rows->count && key >= rows->keys[0] && key - rows->keys[0] < rows->count;
        if (!fits)
            return lig_fail(LIG_E_CORRUPT, "key %lld was not requested", (long long)key);
        uint8_t *place = place_for(rows, key, &bytes);
        if (bytes > left)
            return lig_fail(LIG_E_CORRUPT, "truncated response: rows are missing");
        if (place)
            memcpy(place, body, bytes);
        body += bytes;
        left -= bytes;
    }
    if (content->front.more) {
        ligi_snapshot_front front = {
            .call = self->call, .unit = rows->unit, .at = content->front.at};
        return ligi_params_snapshot_send(node, rank, LIGI_SNAPSHOT_GET, &front, NULL, 0);
    }
    rows->asking[rank] = 0;
    self->awaited--;
    return LIG_OK;
}

static int by_key(const void *left, const void *right, void *context)
{
    const ligi_snapshot_rows *rows = context;
    int64_t a = rows->keys[*(const uint32_t *)left], b = rows->keys[*(const uint32_t *)right];
    return a < b ? -1 : a > b;
}

/* Hashed rows arrive in any order; one that moved meanwhile may arrive twice. */
static int complete(ligi_snapshot_rows *rows)
{
    if (rows->found < rows->count || rows->overflow)
        return 0;
    if (!ligi_tables_hashed(rows->plan->tables) || rows->count == 0)
        return 1;
    qsort_r(rows->order, rows->count, sizeof *rows->order, by_key, rows);
    for (uint32_t i = 1; i < rows->count; i++)
        if (rows->keys[rows->order[i]] == rows->keys[rows->order[i - 1]])
            return 0;
    return 1;
}

static int answered(void *context)
{
    const ligi_snapshot_call *call = context;
    return call->snapshot->awaited == 0 || ligi_params_snapshot_interrupted(call->node);
}

static void take_own(ligi_snapshot_rows *rows, lig_params *node)
{
    const ligi_snapshot_index *index = &node->snapshot->index;
    uint64_t first = 0, count = rows->count;
    if (ligi_tables_hashed(node->tables)) {
        first = index->starts[rows->unit];
        count = index->starts[rows->unit + 1] - first;
    }
    for (uint64_t i = 0; i < count; i++) {
        size_t bytes;
        ligi_entry entry = ligi_tables_hashed(node->tables) ? index->entries[first + i]
                                                            : (ligi_entry)rows->keys[i];
        if (ligi_tables_state(node->tables, entry) != LIGI_ROW_OWNED)
            continue;
        uint8_t *place = place_for(rows, ligi_tables_key(node->tables, entry), &bytes);
        if (place)
            ligi_tables_get_body(node->tables, entry, place);
    }
}

static lig_status ask_all(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    lig_params *node = call->node;
    struct ligi_snapshot_state *self = call->snapshot;
    ligi_snapshot_front front = {.call = self->call, .unit = rows->unit};
    LIG_TRY(ligi_params_snapshot_index_make(node, rows->plan, &self->index));
    rows->found = rows->overflow = 0;
    memset(rows->here, 0, rows->count);
    for (uint32_t i = 0; i < rows->count; i++)
        rows->order[i] = i;
    self->asked = rows;
    self->awaited = 0;
    take_own(rows, node);
    if (complete(rows))
        return LIG_OK;
    for (uint32_t i = 0; i < node->node_count; i++) {
        if (i == node->rank)
            continue;
        LIG_TRY(ligi_params_snapshot_send(node, i, LIGI_SNAPSHOT_GET, &front, NULL, 0));
        rows->asking[i] = 1;
        self->awaited++;
    }
    return LIG_OK;
}

/* Once the request is withdrawn, nothing is written into the rows any more. */
static void stop_asking(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    ligi_node_lock(call->node);
    call->snapshot->asked = NULL;
    call->snapshot->awaited = 0;
    memset(rows->asking, 0, call->node->node_count);
    ligi_node_unlock(call->node);
}

static lig_status wait_for_answers(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    lig_status status = ligi_params_snapshot_wait(call, answered);
    stop_asking(rows, call);
    if (status == LIG_E_TIMEOUT && !call->given_up)
        return lig_fail(status, "%s '%s': timeout waiting for rows of other nodes", call->verb,
                        call->model);
    LIG_TRY(status);
    return ligi_params_snapshot_why(call);
}

static int interrupted(void *context)
{
    return ligi_params_snapshot_interrupted(context);
}

/* Rows that are being relocated will be found in a moment. */
static lig_status wait_a_moment(const ligi_snapshot_rows *rows, ligi_snapshot_call *call,
                                int64_t give_up_ns)
{
    lig_status status = ligi_node_wait(call->node, interrupted, call->node, AGAIN_NS);
    if (status == LIG_OK)
        return ligi_params_snapshot_why(call);
    if (status != LIG_E_TIMEOUT)
        return status;
    if (ligi_time_left(give_up_ns) != 0 && ligi_time_left(call->deadline_ns) != 0)
        return LIG_OK;
    return lig_fail(LIG_E_BUSY,
                    "%s '%s': table '%s' has %u rows in a block, but %u were counted; no worker "
                    "may access new keys meanwhile",
                    call->verb, call->model, ligi_tables_name(call->node->tables, rows->table),
                    rows->found + rows->overflow, rows->count);
}

lig_status ligi_params_snapshot_rows_gather(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    int64_t give_up_ns = ligi_time_until(call->node->timeout_ns);
    for (;;) {
        ligi_node_lock(call->node);
        lig_status status = ask_all(rows, call);
        ligi_node_unlock(call->node);
        if (status != LIG_OK)
            stop_asking(rows, call);
        LIG_TRY(status);
        LIG_TRY(wait_for_answers(rows, call));
        if (complete(rows))
            return LIG_OK;
        LIG_TRY(wait_a_moment(rows, call, give_up_ns));
    }
}

/* --- scattering --- */

static void give_own(ligi_snapshot_rows *rows, lig_params *node)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        ligi_entry entry;
        if (rows->here[i] || !ligi_tables_known(node->tables, rows->keys[i], &entry))
            continue;
        int set = ligi_tables_set_body(node->tables, entry, rows->bodies + rows->offsets[i]);
        if (set == 1)
            ligi_sync_noted(node, NULL, &entry, 1);
        rows->here[i] = set >= 0;
        rows->found += set >= 0;
    }
}

/* All rows for that node, in one message. */
static lig_status put_given(ligi_snapshot_rows *rows, lig_params *node, uint32_t rank)
{
    ligi_snapshot_front front = {.call = node->snapshot->call, .unit = rows->unit};
    uint64_t bytes = 0;
    ligi_send_buffer *buffer = NULL;
    for (uint32_t i = 0; i < rows->count; i++)
        if (rows->given[i] == rank + 1) {
            front.count++;
            bytes += body_bytes(rows, i);
        }
    bytes += sizeof front + (uint64_t)front.count * 8;
    LIG_TRY(ligi_send_buffer_take(node, bytes, &buffer));
    uint8_t *key = buffer->data + sizeof front, *body = key + (uint64_t)front.count * 8;
    memcpy(buffer->data, &front, sizeof front);
    for (uint32_t i = 0; i < rows->count; i++) {
        if (rows->given[i] != rank + 1)
            continue;
        memcpy(key, &rows->keys[i], 8);
        memcpy(body, rows->bodies + rows->offsets[i], body_bytes(rows, i));
        key += 8;
        body += body_bytes(rows, i);
    }
    buffer->bytes = bytes;
    ligi_params_outgoing outgoing = {
        .message = {.kind = LIGI_PARAMS_SNAPSHOT, .verb = LIGI_SNAPSHOT_PUT, .origin = node->rank},
        .buffer = buffer};
    return ligi_params_peer_send(&node->peers[rank], &outgoing);
}

/* 1 if the message is the response expected from that node. */
static int expected(lig_params *node, uint32_t rank, const ligi_snapshot_message *content)
{
    struct ligi_snapshot_state *self = node->snapshot;
    ligi_snapshot_rows *rows = self->asked;
    if (rows == NULL || content->front.call != self->call || content->front.unit != rows->unit ||
        !rows->asking[rank])
        return 0;
    if (content->front.status == LIG_OK)
        return 1;
    self->failure.status = (lig_status)content->front.status;
    snprintf(self->failure.text, sizeof self->failure.text, "node %u could not store its rows (%s)",
             rank, lig_status_name(self->failure.status));
    return 0;
}

static void is_answered(lig_params *node, uint32_t rank)
{
    node->snapshot->asked->asking[rank] = 0;
    node->snapshot->awaited--;
}

lig_status ligi_params_snapshot_owned(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content)
{
    ligi_snapshot_rows *rows = node->snapshot->asked;
    uint32_t count = 0;
    if (!expected(node, rank, content))
        return LIG_OK;
    if (content->front.count != rows->count)
        return lig_fail(LIG_E_CORRUPT, "response for %u rows, but %u were sent",
                        content->front.count, rows->count);
    for (uint32_t i = 0; i < rows->count; i++)
        if (!rows->here[i] && !rows->given[i] && ligi_params_snapshot_message_bit(content, i)) {
            rows->given[i] = (uint16_t)(rank + 1);
            count++;
        }
    if (count)
        return put_given(rows, node, rank);
    is_answered(node, rank);
    return LIG_OK;
}

lig_status ligi_params_snapshot_taken(lig_params *node, uint32_t rank,
                                      const ligi_snapshot_message *content)
{
    ligi_snapshot_rows *rows = node->snapshot->asked;
    uint32_t at = 0;
    if (!expected(node, rank, content))
        return LIG_OK;
    for (uint32_t i = 0; i < rows->count && at < content->front.count; i++) {
        if (rows->given[i] != rank + 1)
            continue;
        rows->here[i] = (uint8_t)ligi_params_snapshot_message_bit(content, at++);
        rows->found += rows->here[i];
        rows->given[i] = 0;
    }
    is_answered(node, rank);
    return LIG_OK;
}

static lig_status ask_owners(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    lig_params *node = call->node;
    ligi_snapshot_front front = {
        .call = call->snapshot->call, .unit = rows->unit, .count = rows->count};
    struct iovec keys = {rows->keys, (size_t)rows->count * 8};
    memset(rows->given, 0, rows->count * sizeof *rows->given);
    call->snapshot->asked = rows;
    call->snapshot->awaited = 0;
    give_own(rows, node);
    for (uint32_t i = 0; i < node->node_count && rows->found < rows->count; i++) {
        if (i == node->rank)
            continue;
        LIG_TRY(ligi_params_snapshot_send(node, i, LIGI_SNAPSHOT_OWN, &front, &keys, 1));
        rows->asking[i] = 1;
        call->snapshot->awaited++;
    }
    return LIG_OK;
}

/* Hashed keys that no node had. */
static lig_status give_homes(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    lig_params *node = call->node;
    memset(rows->given, 0, rows->count * sizeof *rows->given);
    call->snapshot->asked = rows;
    call->snapshot->awaited = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t home = ligi_tables_home(node->tables, rows->keys[i]);
        ligi_entry entry;
        if (rows->here[i])
            continue;
        if (home == node->rank)
            LIG_TRY(ligi_tables_entry(node->tables, rows->keys[i], &entry));
        else
            rows->given[i] = (uint16_t)(home + 1);
        if (home != node->rank && !rows->asking[home]) {
            rows->asking[home] = 1;
            call->snapshot->awaited++;
        }
    }
    give_own(rows, node);
    for (uint32_t i = 0; i < node->node_count; i++)
        if (rows->asking[i])
            LIG_TRY(put_given(rows, node, i));
    return LIG_OK;
}

static lig_status one_pass(ligi_snapshot_rows *rows, ligi_snapshot_call *call,
                           lig_status (*start)(ligi_snapshot_rows *rows, ligi_snapshot_call *call))
{
    ligi_node_lock(call->node);
    lig_status status = start(rows, call);
    ligi_node_unlock(call->node);
    if (status != LIG_OK)
        stop_asking(rows, call);
    LIG_TRY(status);
    return wait_for_answers(rows, call);
}

lig_status ligi_params_snapshot_rows_scatter(ligi_snapshot_rows *rows, ligi_snapshot_call *call)
{
    int64_t give_up_ns = ligi_time_until(call->node->timeout_ns);
    memset(rows->here, 0, rows->count);
    rows->found = rows->overflow = 0;
    for (;;) {
        LIG_TRY(one_pass(rows, call, ask_owners));
        if (rows->found < rows->count && ligi_tables_hashed(call->node->tables))
            LIG_TRY(one_pass(rows, call, give_homes));
        if (rows->found == rows->count)
            return LIG_OK;
        LIG_TRY(wait_a_moment(rows, call, give_up_ns));
    }
}
