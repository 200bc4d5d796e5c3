#include "base/boot.h"
#include "params/node/params_barrier.h"
#include "params/node/params_batch.h"
#include "params/node/params_info.h"
#include "params/node/params_sums.h"
#include "params/requests/request_complete.h"
#include "params/requests/request_order.h"
#include "params/requests/request_send.h"
#include "params/sampling/sampling.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

/* --- opening and closing --- */

static void free_worker(lig_params_worker *worker)
{
    ligi_params_request_state_destroy(worker);
    ligi_params_tickets_fini(&worker->tickets);
    ligi_params_batch_fini(worker);
    free(worker->aside);
    ligi_params_sums_fini(worker);
    free(worker);
}

static lig_status make_worker(lig_params *node, uint32_t id, lig_params_worker **out)
{
    lig_params_worker *worker;
    LIG_TRY(ligi_calloc(&worker, 1, sizeof *worker, "a worker"));
    worker->node = node;
    worker->id = id;
    worker->waited = node->first_ticket;
    worker->scratch.team = node->team;
    ligi_params_tickets_init(&worker->tickets, node->first_ticket);
    lig_status status = ligi_node_alone(node) ? LIG_OK : ligi_params_request_state_create(worker);
    if (status == LIG_OK)
        status = ligi_sync_worker_open(worker);
    if (status != LIG_OK) {
        free_worker(worker);
        return status;
    }
    status = ligi_sample_worker_open(worker);
    if (status != LIG_OK) {
        ligi_sync_worker_close(worker);
        free_worker(worker);
        return status;
    }
    *out = worker;
    return LIG_OK;
}

lig_status lig_params_worker_open(lig_params_worker **worker, lig_params *node, uint32_t id)
{
    LIG_TRY(ligi_session_check(&node->session));
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler has no workers");
    if (id >= node->worker_count)
        return lig_fail(LIG_E_INVALID, "worker %u: the id must be less than worker_count %u", id,
                        node->worker_count);
    ligi_node_lock(node);
    lig_status status = LIG_OK;
    if (node->workers[id])
        status = lig_fail(LIG_E_EXISTS, "worker %u is already open", id);
    if (status == LIG_OK)
        status = make_worker(node, id, &node->workers[id]);
    if (status == LIG_OK)
        *worker = node->workers[id];
    ligi_node_unlock(node);
    return status;
}

void lig_params_worker_close(lig_params_worker *worker)
{
    if (worker == NULL)
        return;
    lig_params *node = worker->node;
    if (!ligi_fork_mark_here(
            node->session.here)) { /* forked: another thread may have held the lock */
        free_worker(worker);
        return;
    }
    ligi_sync_finalize(worker);
    ligi_node_lock(node);
    ligi_params_request_abandon(worker, LIG_E_CLOSED, "the worker has been closed");
    ligi_sample_worker_close(worker);
    ligi_sync_worker_close(worker);
    ligi_params_counts_add(&worker->counts, &node->totals);
    node->workers[worker->id] = NULL;
    if (worker->tickets.next > node->first_ticket)
        node->first_ticket = worker->tickets.next;
    ligi_node_unlock(node);
    free_worker(worker);
}

/* --- accesses --- */

/* All arguments are checked here, before any access. */
static lig_status begin(lig_params_worker *worker, const int64_t *keys, size_t count,
                        const void *values, uint64_t elements)
{
    uint64_t sum = 0;
    LIG_TRY(ligi_session_check(&worker->node->session));
    if (count > UINT32_MAX)
        return lig_fail(LIG_E_LIMIT, "%zu keys in one call: the limit is %u", count, UINT32_MAX);
    if ((keys == NULL && count > 0) || (values == NULL && elements > 0))
        return lig_fail(LIG_E_INVALID, "keys or values is NULL (%zu keys, %llu elements)", count,
                        (unsigned long long)elements);
    LIG_TRY(ligi_params_batch_reserve(worker, count));
    ligi_batch *batch = &worker->scratch;
    batch->keys = keys;
    batch->count = count;
    batch->values = (void *)(uintptr_t)values; /* a write only reads them */
    batch->miss_count = batch->noted_count = batch->replica_count = 0;
    batch->distinct = worker->pushes_sums;
    batch->lr = NULL;
    LIG_TRY(ligi_tables_lengths(worker->node->tables, keys, count, &sum));
    if (sum != elements)
        return lig_fail(LIG_E_INVALID,
                        "the rows of %zu keys have %llu elements, but values has %llu", count,
                        (unsigned long long)sum, (unsigned long long)elements);
    if (ligi_tables_hashed(worker->node->tables))
        return ligi_tables_enter(worker->node->tables, keys, count, batch->entries);
    return LIG_OK;
}

/* Only the worker's own thread counts: no locked instruction needed. */
static void add(_Atomic uint64_t *counter, uint64_t count)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + count,
                          memory_order_relaxed);
}

static int has_open(const lig_params_worker *worker)
{
    return atomic_load_explicit(&worker->tickets.ended, memory_order_acquire) !=
           worker->tickets.next;
}

/* After the local pass: updates the counters and requests the remaining rows. */
static lig_status finish(lig_params_worker *worker, ligi_verb verb, int64_t *ticket)
{
    ligi_batch *batch = &worker->scratch;
    add(&worker->counts.replica, batch->replica_count);
    add(&worker->counts.local, batch->count - batch->miss_count - batch->replica_count);
    if (batch->miss_count > 0)
        return ligi_params_request_send(worker, verb, batch, ticket);
    *ticket = LIG_PARAMS_LOCAL;
    return LIG_OK;
}

lig_status lig_params_pull(lig_params_worker *worker, const int64_t *keys, size_t count,
                           void *values, uint64_t elements, int64_t *ticket)
{
    LIG_TRY(begin(worker, keys, count, values, elements));
    if (has_open(worker))
        LIG_TRY(ligi_params_request_order(worker, LIGI_PULL, &worker->scratch));
    ligi_tables_read(worker->node->tables, &worker->scratch);
    add(&worker->counts.pulls, count);
    return finish(worker, LIGI_PULL, ticket);
}

static lig_status write(lig_params_worker *worker, ligi_verb verb, int64_t *ticket)
{
    ligi_batch *batch = &worker->scratch;
    if (has_open(worker))
        LIG_TRY(ligi_params_request_order(worker, verb, batch));
    ligi_tables_write(worker->node->tables, verb == LIGI_SET ? LIGI_WRITE_SET : LIGI_WRITE_PUSH,
                      batch);
    if (batch->noted_count > 0)
        ligi_sync_noted(worker->node, worker, batch->noted, batch->noted_count);
    return finish(worker, verb, ticket);
}

lig_status lig_params_push(lig_params_worker *worker, const int64_t *keys, size_t count,
                           const void *values, uint64_t elements, int64_t *ticket)
{
    LIG_TRY(begin(worker, keys, count, values, elements));
    add(&worker->counts.pushes, count);
    return write(worker, LIGI_PUSH, ticket);
}

lig_status lig_params_set(lig_params_worker *worker, const int64_t *keys, size_t count,
                          const void *values, uint64_t elements, int64_t *ticket)
{
    LIG_TRY(begin(worker, keys, count, values, elements));
    add(&worker->counts.sets, count);
    return write(worker, LIGI_SET, ticket);
}

/* Fills the caller's memory only after all rows have been read, since a row may be relocated
 * meanwhile; on a single node rows never move. 1 if all were local. */
static lig_status read_here(lig_params_worker *worker, ligi_batch *batch, uint64_t elements,
                            int *here)
{
    const ligi_tables *tables = worker->node->tables;
    size_t bytes = elements * ligi_tables_element_bytes(tables);
    void *values = batch->values;
    int aside = !ligi_node_alone(worker->node) && bytes > 0;
    if (aside) {
        LIG_TRY(ligi_grow(&worker->aside, &worker->aside_room, bytes, 1, "rows"));
        batch->values = worker->aside;
    }
    ligi_tables_read(tables, batch);
    *here = batch->miss_count == 0;
    if (*here && aside)
        memcpy(values, worker->aside, bytes);
    return LIG_OK;
}

lig_status lig_params_pull_if_local(lig_params_worker *worker, const int64_t *keys, size_t count,
                                    void *values, uint64_t elements, int *local)
{
    LIG_TRY(begin(worker, keys, count, values, elements));
    ligi_batch *batch = &worker->scratch;
    *local = 0;
    if (has_open(worker) && !ligi_params_request_may(worker, LIGI_PULL, batch))
        return LIG_OK;
    if (!ligi_tables_all_here(worker->node->tables, batch))
        return LIG_OK;
    int here = 0;
    LIG_TRY(read_here(worker, batch, elements, &here));
    if (!here) /* one was just relocated */
        return LIG_OK;
    add(&worker->counts.pulls, count);
    add(&worker->counts.replica, batch->replica_count);
    add(&worker->counts.local, count - batch->replica_count);
    *local = 1;
    return LIG_OK;
}

/* --- clocks --- */

int64_t lig_params_advance_clock(lig_params_worker *worker)
{
    int64_t now = lig_params_current_clock(worker);
    if (now < 0 || now == LIG_PARAMS_FOREVER_CLOCK)
        return now;
    atomic_store_explicit(&worker->clock, now + 1, memory_order_release);
    ligi_sync_clock(worker);
    return now + 1;
}

int64_t lig_params_current_clock(const lig_params_worker *worker)
{
    if (ligi_session_mine(&worker->node->session) != LIG_OK)
        return -1;
    return atomic_load_explicit(&worker->clock, memory_order_relaxed);
}

/* --- finalize --- */

lig_status lig_params_worker_finalize(lig_params_worker *worker, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);
    LIG_TRY(ligi_session_check(&worker->node->session));
    if (atomic_load(&worker->finalized))
        return LIG_OK;
    LIG_TRY(lig_params_wait_all(worker, timeout_ns));
    LIG_TRY(lig_params_flush(worker, ligi_time_left(deadline)));
    atomic_store(&worker->clock, LIG_PARAMS_FOREVER_CLOCK);
    ligi_sync_finalize(worker);
    LIG_TRY(ligi_node_worker_barrier(worker, LIGI_BARRIER_FINALIZE, ligi_time_left(deadline)));
    atomic_store(&worker->finalized, 1);
    return LIG_OK;
}
