#include "params/requests/request_send.h"

#include "net/service.h"
#include "params/requests/request_complete.h"
#include "params/requests/request_order.h"
#include "params/rows/optimizer.h"
#include "params/rows/table_state.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_AHEAD = 16 };
#define STAGED_MOST (UINT64_C(64) << 20) /* bytes of rows that a worker may have outstanding */
#define TICKET_MOST (UINT64_C(16) << 20) /* per ticket */

/* --- what delays a worker's access --- */

typedef struct obstacle {
    lig_params *node;
    const ligi_batch *batch;
} obstacle;

static int has_state(const ligi_batch *batch, const ligi_tables *tables, ligi_row_state state)
{
    for (size_t i = 0; i < batch->miss_count; i++)
        if (ligi_word_state(ligi_tables_word(tables, batch->misses[i].entry)) == state)
            return 1;
    return 0;
}

/* No push to this replica is pending any more. Once true after a worker's last push, this stays
 * true for that push, whatever happens to the row: the owner has it. */
static int all_absent(const ligi_batch *batch, const ligi_tables *tables)
{
    for (size_t i = 0; i < batch->miss_count; i++)
        if (ligi_word_state(ligi_tables_word(tables, batch->misses[i].entry)) != LIGI_ROW_ABSENT)
            return 0;
    return 1;
}

/* No dropped replica is waiting for its owner's confirmation. */
static int is_free(void *context)
{
    const obstacle *what = context;
    return atomic_load(&what->node->session.broken) ||
           !has_state(what->batch, what->node->tables, LIGI_ROW_DRAINING);
}

/* A worker that sets a row drops its local replica, which would show the old value for a while. */
static void surrender(lig_params *node, const ligi_batch *batch)
{
    ligi_node_lock(node);
    for (size_t i = 0; i < batch->miss_count; i++)
        if (ligi_tables_state(node->tables, batch->misses[i].entry) == LIGI_ROW_REPLICA)
            ligi_sync_surrender(node, batch->misses[i].entry);
    ligi_node_unlock(node);
}

static void look_again(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch)
{
    lig_params *node = worker->node;
    size_t noted = batch->noted_count;
    if (verb == LIGI_PULL) {
        ligi_tables_read_misses(node->tables, batch);
        return;
    }
    ligi_tables_write_misses(node->tables, verb == LIGI_SET ? LIGI_WRITE_SET : LIGI_WRITE_PUSH,
                             batch);
    if (batch->noted_count > noted)
        ligi_sync_noted(node, worker, batch->noted + noted, batch->noted_count - noted);
}

/* Keeps the misses that are remote and may be requested from another node. */
static lig_status clear_way(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch)
{
    lig_params *node = worker->node;
    obstacle what = {node, batch};
    int64_t deadline = ligi_time_until(node->timeout_ns);
    while (!all_absent(batch, node->tables)) {
        if (verb == LIGI_SET && has_state(batch, node->tables, LIGI_ROW_REPLICA))
            surrender(node, batch);
        if (!is_free(&what))
            ligi_net_hurry(node->session.net, LIGI_SERVICE_PARAMS);
        lig_status status = ligi_node_wait(node, is_free, &what, ligi_time_left(deadline));
        if (status == LIG_E_TIMEOUT)
            return lig_fail(LIG_E_TIMEOUT, "timeout: replicas were not confirmed by their owners");
        LIG_TRY(status);
        look_again(worker, verb, batch);
        if (atomic_load(&node->session.broken)) /* draining rows will not be confirmed any more */
            break;
    }
    return batch->miss_count > 0 ? ligi_session_usable(&node->session) : LIG_OK;
}

/* --- sending requests --- */

/* Sorts the misses by the node to ask: heads[n] .. heads[n + 1] of by_node. 0 if a row has arrived
 * here meanwhile. */
static int sort_misses(lig_params_worker *worker, const ligi_batch *batch)
{
    struct ligi_params_request_state *requests = worker->requests;
    lig_params *node = worker->node;
    uint32_t *heads = requests->heads;
    memset(heads, 0, (node->node_count + 1) * sizeof *heads);
    for (size_t i = 0; i < batch->miss_count; i++) {
        if (i + PLACES_AHEAD < batch->miss_count)
            __builtin_prefetch(&node->tables->entry_infos[batch->misses[i + PLACES_AHEAD].entry]);
        uint32_t to = ligi_tables_location(node->tables, batch->misses[i].entry).node;
        if (to == node->rank || to >= node->node_count)
            return 0;
        requests->by_node[batch->miss_count + i] = to;
        heads[to + 1]++;
    }
    for (uint32_t n = 0; n < node->node_count; n++)
        heads[n + 1] += heads[n];
    for (size_t i = 0; i < batch->miss_count; i++)
        requests->by_node[heads[requests->by_node[batch->miss_count + i]]++] = (uint32_t)i;
    memmove(heads + 1, heads, node->node_count * sizeof *heads);
    heads[0] = 0;
    return 1;
}

/* Rows in the memory of peers on this host are read there. With two nodes the owner is always
 * known. Returns the number of rows read. */
static size_t read_peers(lig_params_worker *worker, ligi_batch *batch)
{
    lig_params *node = worker->node;
    size_t before = batch->miss_count;
    if (node->region_bytes == 0 || ligi_tables_hashed(node->tables) ||
        (node->node_count > 2 && !sort_misses(worker, batch)))
        return 0;
    const uint32_t *heads = worker->requests->heads;
    for (uint32_t n = 0; n < node->node_count && batch->miss_count > 0; n++) {
        const void *region = node->peers[n].region;
        if (region && node->node_count == 2)
            ligi_tables_read_peer(node->tables, region, UINT32_MAX, batch);
        else if (region && heads[n + 1] > heads[n])
            ligi_tables_read_peer(node->tables, region, n, batch);
    }
    size_t found = before - batch->miss_count;
    uint64_t all = atomic_load_explicit(&worker->counts.shared, memory_order_relaxed);
    atomic_store_explicit(&worker->counts.shared, all + found, memory_order_relaxed);
    return found;
}

static void fill_wants(lig_params_worker *worker, const ligi_batch *batch,
                       ligi_request_ticket *ticket)
{
    const ligi_tables *tables = worker->node->tables;
    uint64_t element = ligi_tables_element_bytes(tables);
    for (size_t i = 0; i < batch->miss_count; i++) {
        const ligi_miss *miss = &batch->misses[i];
        ticket->wants[i] = (ligi_want){.key = batch->keys[miss->position],
                                       .at = miss->at * element,
                                       .bytes = ligi_tables_length(tables, miss->entry) * element};
    }
    assert(ticket->state == LIGI_TICKET_OPEN && batch->miss_count > 0);
    ticket->want_count = ticket->left = (uint32_t)batch->miss_count;
}

typedef struct asking {
    lig_params_worker *worker;
    ligi_verb verb;
    const ligi_batch *batch;
    ligi_request_ticket *ticket;
    const double *rates;
    uint64_t bytes; /* of the requested rows */
} asking;

/* How many of `count` keys fit into one message, and the bytes of its payload. */
static uint32_t fit(const asking *call, const uint32_t *indexes, uint32_t count, uint64_t *bytes)
{
    uint64_t rows = 0;
    uint32_t most = count < LIGI_PARAMS_KEYS_MAX ? count : LIGI_PARAMS_KEYS_MAX, n = 0;
    for (; n < most; n++) {
        uint64_t more = rows + call->ticket->wants[indexes[n]].bytes; /* of a pull: of its
                                                                       * response */
        if (n > 0 && more + 12 * (uint64_t)(n + 1) > LIGI_PARAMS_PAYLOAD_GOOD)
            break;
        rows = more;
    }
    *bytes = 8 * (uint64_t)n + LIGI_PAD8(4 * (uint64_t)n) + (call->verb == LIGI_PULL ? 0 : rows);
    return n;
}

static void fill_buffer(const asking *call, const uint32_t *indexes, uint32_t count,
                        ligi_send_buffer *buffer)
{
    int64_t *keys = (int64_t *)(void *)buffer->data;
    uint32_t *positions = (uint32_t *)(void *)(keys + count);
    uint8_t *rows = buffer->data + 8 * (uint64_t)count + LIGI_PAD8(4 * (uint64_t)count);
    for (uint32_t i = 0; i < count; i++) {
        const ligi_want *want = &call->ticket->wants[indexes[i]];
        keys[i] = want->key;
        positions[i] = indexes[i];
        if (call->verb == LIGI_PULL)
            continue;
        memcpy(rows, (const uint8_t *)call->batch->values + want->at, want->bytes);
        rows += want->bytes;
    }
    if (count % 2)
        positions[count] = 0;
}

/* One message. The buffer of a write is lent: the ticket holds it until the response. */
static lig_status send_request(const asking *call, uint32_t to, const uint32_t *indexes,
                               uint32_t count, uint64_t bytes)
{
    lig_params_worker *worker = call->worker;
    lig_params *node = worker->node;
    ligi_send_buffer *buffer;
    ligi_node_lock(node);
    lig_status status = ligi_session_usable(&node->session);
    if (status == LIG_OK)
        status = ligi_send_buffer_take(node, bytes, &buffer);
    ligi_node_unlock(node);
    LIG_TRY(status);
    buffer->bytes = bytes;
    fill_buffer(call, indexes, count, buffer);
    ligi_params_outgoing outgoing = {.message = {.kind = LIGI_PARAMS_REQUEST,
                                                 .verb = (uint8_t)call->verb,
                                                 .flags = call->rates ? LIGI_PARAMS_RATES : 0,
                                                 .origin = node->rank,
                                                 .count = count,
                                                 .worker = worker->id,
                                                 .ticket = (uint64_t)call->ticket->number},
                                     .tail = call->rates,
                                     .tail_bytes =
                                         call->rates ? 8 * ligi_tables_count(node->tables) : 0,
                                     .buffer = buffer,
                                     .send_flags = LIGI_SEND_LEND};
    ligi_node_lock(node);
    if (call->ticket->state == LIGI_TICKET_OPEN) {
        assert(buffer->holds == 1 && buffer->with == NULL);
        buffer->holds++;
        buffer->with = call->ticket->buffers;
        call->ticket->buffers = buffer;
    } else {
        outgoing.send_flags = 0; /* it has failed, and the lent buffer is not in use */
    }
    status = ligi_params_peer_send(&node->peers[to], &outgoing);
    ligi_node_unlock(node);
    return status;
}

static lig_status send_all(const asking *call)
{
    const struct ligi_params_request_state *requests = call->worker->requests;
    for (uint32_t n = 0; n < call->worker->node->node_count; n++) {
        uint32_t at = requests->heads[n], end = requests->heads[n + 1];
        while (at < end) {
            uint64_t bytes;
            uint32_t count = fit(call, requests->by_node + at, end - at, &bytes);
            LIG_TRY(send_request(call, n, requests->by_node + at, count, bytes));
            at += count;
        }
    }
    return LIG_OK;
}

static const double *rates_of(const lig_params_worker *worker, ligi_verb verb, double *rates)
{
    const ligi_tables *tables = worker->node->tables;
    int any = 0;
    if (verb != LIGI_PUSH)
        return NULL;
    for (uint32_t i = 0; i < ligi_tables_count(tables); i++) {
        any |= ligi_tables_optimizer(tables, i)->kind != LIG_PARAMS_ADD;
        rates[i] = ligi_tables_get_lr(tables, i);
    }
    return any ? rates : NULL;
}

/* Under the lock. LIG_E_BUSY: too much is outstanding. */
static lig_status try_ticket(asking *call)
{
    lig_params_worker *worker = call->worker;
    if (worker->staged > 0 && worker->staged + call->bytes > STAGED_MOST)
        return LIG_E_BUSY;
    LIG_TRY(ligi_params_tickets_begin(&worker->tickets, (uint8_t)call->verb, &call->ticket));
    lig_status status = ligi_params_ticket_reserve(call->ticket, call->batch->miss_count);
    if (status == LIG_OK)
        status = ligi_session_usable(&worker->node->session);
    if (status != LIG_OK) {
        ligi_params_tickets_undo(&worker->tickets, call->ticket);
        return status;
    }
    fill_wants(worker, call->batch, call->ticket);
    call->ticket->bytes = call->bytes;
    worker->staged += call->bytes;
    call->ticket->values = call->verb == LIGI_PULL ? call->batch->values : NULL;
    return LIG_OK;
}

static lig_status begin_ticket(asking *call)
{
    lig_params_worker *worker = call->worker;
    for (;;) {
        ligi_node_lock(worker->node);
        lig_status status = try_ticket(call);
        int64_t oldest = atomic_load(&worker->tickets.ended);
        ligi_node_unlock(worker->node);
        if (status != LIG_E_BUSY)
            return status;
        LIG_TRY(ligi_params_request_wait_ended(worker, oldest + 1, worker->node->timeout_ns));
    }
}

static lig_status ask_some(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch,
                           uint64_t bytes, int64_t *ticket)
{
    double rates[LIG_PARAMS_TABLES_MAX];
    asking call = {.worker = worker, .verb = verb, .batch = batch, .bytes = bytes};
    call.rates = rates_of(worker, verb, rates);
    LIG_TRY(begin_ticket(&call));
    for (size_t i = 0; i < batch->miss_count; i++)
        ligi_params_request_remember(worker, verb, call.ticket->wants[i].key, call.ticket->number);
    *ticket = call.ticket->number;
    return send_all(&call);
}

/* If a row is set twice in one call, the last value counts. */
static void keep_last(ligi_batch *batch)
{
    ligi_miss *misses = batch->misses;
    size_t at = batch->miss_count;
    ligi_seen_set_begin(batch->seen_set);
    for (size_t i = batch->miss_count; i-- > 0;)
        if (ligi_seen_set_add(batch->seen_set, misses[i].entry))
            misses[--at] = misses[i];
    batch->miss_count -= at;
    memmove(misses, misses + at, batch->miss_count * sizeof *misses);
}

/* A row is pushed to twice, and its optimizer's steps do not commute. */
static int has_steps_in_order(const lig_params_worker *worker, ligi_verb verb,
                              const ligi_batch *batch)
{
    if (verb != LIGI_PUSH || !worker->requests->any_strict)
        return 0;
    ligi_seen_set_begin(batch->seen_set);
    for (size_t i = 0; i < batch->miss_count; i++) {
        ligi_entry entry = batch->misses[i].entry;
        if (!ligi_seen_set_add(batch->seen_set, entry) &&
            ligi_params_request_strict(worker, verb, ligi_tables_key(worker->node->tables, entry)))
            return 1;
    }
    return 0;
}

/* The misses from `first` on that fit in one ticket, at most `most` bytes of messages, and the
 * bytes of their rows. */
static size_t portion(const ligi_tables *tables, const ligi_batch *batch, size_t first,
                      uint64_t most, uint64_t *bytes)
{
    uint32_t element = ligi_tables_element_bytes(tables), uniform = ligi_tables_uniform(tables);
    size_t i = first;
    *bytes = 0;
    for (; i < batch->miss_count; i++) {
        uint32_t length = uniform ? uniform : ligi_tables_length(tables, batch->misses[i].entry);
        uint64_t more = *bytes + (uint64_t)length * element;
        if (i > first && more + 12 * (uint64_t)(i + 1 - first) > most)
            break;
        *bytes = more;
    }
    return i - first;
}

/* A failed call borrows nothing: responses to requests it has sent are discarded. */
static lig_status give_up(lig_params_worker *worker, int64_t first, lig_status status)
{
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_node_lock(worker->node);
    for (int64_t i = first; i < worker->tickets.next; i++) {
        ligi_request_ticket *ticket = ligi_params_tickets_find(&worker->tickets, i);
        if (ticket)
            ligi_params_request_end(worker, ticket, status, failure.text);
        if (ticket)
            ticket->told = 1;
    }
    ligi_node_unlock(worker->node);
    return ligi_failure_publish(&failure);
}

/* A large call is split into several tickets; all but the last are waited for here, which bounds
 * the memory in use. Messages may overtake each other while rows move: steps that must stay in
 * order go in one message, or one after another. */
static lig_status ask_all(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch,
                          int64_t *ticket)
{
    lig_params *node = worker->node;
    int64_t last = LIG_PARAMS_LOCAL, begun = worker->tickets.next;
    lig_status status = LIG_OK;
    int in_order = has_steps_in_order(worker, verb, batch);
    uint64_t most = in_order ? LIGI_PARAMS_PAYLOAD_GOOD : TICKET_MOST;
    for (size_t first = 0, count; first < batch->miss_count && status == LIG_OK; first += count) {
        uint64_t bytes;
        int64_t before = last;
        count = portion(node->tables, batch, first, most, &bytes);
        ligi_batch part = *batch;
        part.misses = batch->misses + first;
        part.miss_count = count;
        while (part.miss_count > 0 && !sort_misses(worker, &part))
            look_again(worker, verb, &part);
        batch->noted_count = part.noted_count;
        if (part.miss_count > 0)
            status = ask_some(worker, verb, &part, bytes, &last);
        if (status == LIG_OK && before != last)
            status = lig_params_wait(worker, before, node->timeout_ns);
        if (status == LIG_OK && in_order && first + count < batch->miss_count)
            status = lig_params_wait(worker, last, node->timeout_ns);
    }
    if (status != LIG_OK)
        return give_up(worker, begun, status);
    *ticket = last;
    return LIG_OK;
}

/* Rows in flight to this node are accessed here once they arrive. */
static void await_rows(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch)
{
    ligi_params_counts *counts = &worker->counts;
    size_t missing = batch->miss_count, replicas = batch->replica_count;
    if (!ligi_sync_await(worker, batch))
        return;
    look_again(worker, verb, batch);
    replicas = batch->replica_count - replicas;
    atomic_fetch_add_explicit(&counts->replica, replicas, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->local, missing - batch->miss_count - replicas,
                              memory_order_relaxed);
}

lig_status ligi_params_request_send(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch,
                                    int64_t *ticket)
{
    struct ligi_params_request_state *requests = worker->requests;
    LIG_TRY(ligi_session_usable(&worker->node->session));
    LIG_TRY(ligi_grow(&requests->by_node, &requests->by_node_room, 2 * batch->miss_count,
                      sizeof *requests->by_node, "a request"));
    if (verb == LIGI_SET)
        keep_last(batch);
    await_rows(worker, verb, batch);
    LIG_TRY(clear_way(worker, verb, batch));
    size_t shared = verb == LIGI_PULL ? read_peers(worker, batch) : 0;
    uint64_t all = atomic_load_explicit(&worker->counts.remote, memory_order_relaxed);
    atomic_store_explicit(&worker->counts.remote, all + batch->miss_count, memory_order_relaxed);
    LIG_TRY(ask_all(worker, verb, batch, ticket));
    if (shared > 0 && *ticket == LIG_PARAMS_LOCAL)
        *ticket = LIG_PARAMS_SHARED;
    return LIG_OK;
}
