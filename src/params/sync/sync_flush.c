#include "params/sync/sync_flush.h"

#include "params/placement/replica_protocol.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_round.h"

#include <stdlib.h>

/* --- messages --- */

static lig_status flushed(lig_params *node, uint64_t ticket)
{
    ligi_sync *sync = node->sync;

    if (ligi_turn_runs(&sync->flushing) && sync->flushing.started == ticket &&
        sync->flushing_left > 0 && --sync->flushing_left == 0) {
        sync->flushing.finished = sync->flushing.started;
        ligi_node_wake(node);
    }
    return LIG_OK;
}

static lig_status answer_flushes(lig_params *node)
{
    ligi_sync *sync = node->sync;

    for (uint32_t i = 0; i < node->node_count; i++) {
        uint64_t ticket = sync->flush_for[i];
        sync->flush_for[i] = 0;
        if (ticket != 0 && i == node->rank)
            LIG_TRY(flushed(node, ticket - 1));
        else if (ticket != 0)
            LIG_TRY(ligi_sync_say(node, i, LIGI_SYNC_FLUSHED, ticket - 1));
    }
    return LIG_OK;
}

/* All written rows are sent, then all nodes are asked to confirm their arrival; nobody is asked if
 * nothing was sent since the last time. */
static lig_status begin_echoes(lig_params *node)
{
    ligi_sync *sync = node->sync;
    size_t budget = SIZE_MAX;

    LIG_TRY(ligi_sync_gather_notes(node));
    LIG_TRY(ligi_placement_spread(&sync->placement, &budget));
    LIG_TRY(ligi_sync_send_flush(&sync->placement.sender));
    for (uint32_t i = 0; i < node->node_count; i++) {
        sync->flush_for[i] = sync->flush_for_later[i];
        sync->flush_for_later[i] = 0;
    }
    if (sync->echoed_updates == sync->placement.updates)
        return answer_flushes(node);
    sync->echoed_updates = sync->placement.updates;
    sync->echoing.started++;
    sync->echoing_left = node->node_count - 1;
    for (uint32_t i = 0; i < node->node_count; i++)
        if (i != node->rank)
            LIG_TRY(ligi_sync_say(node, i, LIGI_SYNC_PROBE, sync->echoing.started));
    return LIG_OK;
}

static lig_status flush_asked(lig_params *node, uint32_t from, uint64_t ticket)
{
    node->sync->flush_for_later[from] = ticket + 1;
    return ligi_turn_runs(&node->sync->echoing) ? LIG_OK : begin_echoes(node);
}

static lig_status echoed(lig_params *node, uint64_t ticket)
{
    ligi_sync *sync = node->sync;

    if (!ligi_turn_runs(&sync->echoing) || ticket != sync->echoing.started ||
        sync->echoing_left == 0 || --sync->echoing_left > 0)
        return LIG_OK;
    sync->echoing.finished = sync->echoing.started;
    LIG_TRY(answer_flushes(node));
    for (uint32_t i = 0; i < node->node_count; i++)
        if (sync->flush_for_later[i] != 0)
            return begin_echoes(node);
    return LIG_OK;
}

lig_status ligi_sync_flush_arrived(lig_params *node, uint32_t from,
                                   const ligi_params_message *message)
{
    switch (message->kind == LIGI_PARAMS_SYNC ? message->number : 0) {
    case LIGI_SYNC_FLUSH: return flush_asked(node, from, message->ticket);
    case LIGI_SYNC_FLUSHED: return flushed(node, message->ticket);
    case LIGI_SYNC_PROBE: return ligi_sync_say(node, from, LIGI_SYNC_ECHO, message->ticket);
    case LIGI_SYNC_ECHO: return echoed(node, message->ticket);
    default:
        return lig_fail(LIG_E_CORRUPT, "protocol error: unexpected empty message from node %u",
                        from);
    }
}

/* --- waiting --- */

typedef struct waiting {
    lig_params *node;
    int everywhere;            /* and not only in the owners' rows */
    uint64_t settled, flushed; /* the turns that cover it; 0: not reached yet */
    lig_status status;
} waiting;

/* A turn that began before the call does not cover later pushes. */
static lig_status settle(waiting *call)
{
    ligi_sync *sync = call->node->sync;
    ligi_turn *turn = &sync->settling;

    if (call->settled == 0)
        call->settled = turn->started + 1;
    if (ligi_turn_runs(turn) && sync->placement.unsettled[sync->settling_era & 1] == 0)
        turn->finished = turn->started;
    if (ligi_turn_runs(turn) || turn->finished >= call->settled)
        return LIG_OK;
    LIG_TRY(ligi_sync_gather_notes(call->node));
    sync->settling_era = ligi_placement_next_era(&sync->placement);
    turn->started++;
    if (sync->placement.unsettled[sync->settling_era & 1] == 0)
        turn->finished = turn->started;
    else
        ligi_sync_wake(call->node);
    return LIG_OK;
}

static lig_status flush(waiting *call)
{
    lig_params *node = call->node;
    ligi_turn *turn = &node->sync->flushing;

    if (call->flushed == 0)
        call->flushed = turn->started + 1;
    if (ligi_turn_runs(turn) || turn->finished >= call->flushed)
        return LIG_OK;
    turn->started++;
    node->sync->flushing_left = node->node_count;
    for (uint32_t i = 0; i < node->node_count; i++)
        if (i != node->rank)
            LIG_TRY(ligi_sync_say(node, i, LIGI_SYNC_FLUSH, turn->started));
    return flush_asked(node, node->rank, turn->started);
}

static int is_settled(void *context)
{
    waiting *call = context;
    ligi_sync *sync = call->node->sync;

    if (atomic_load(&call->node->session.broken) || call->status != LIG_OK)
        return 1;
    if (call->settled == 0 || sync->settling.finished < call->settled)
        call->status = settle(call);
    if (call->status != LIG_OK || sync->settling.finished < call->settled)
        return call->status != LIG_OK;
    if (!call->everywhere)
        return 1;
    if (call->flushed == 0 || sync->flushing.finished < call->flushed)
        call->status = flush(call);
    return call->status != LIG_OK || sync->flushing.finished >= call->flushed;
}

static lig_status wait_settled(lig_params *node, int everywhere, int64_t timeout_ns)
{
    waiting call = {.node = node, .everywhere = everywhere};

    LIG_TRY(ligi_session_check(&node->session));
    if (node->sync == NULL)
        return LIG_OK;
    LIG_TRY(ligi_session_usable(&node->session));
    lig_status status = ligi_node_wait(node, is_settled, &call, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(LIG_E_TIMEOUT, "timeout: pushes have not reached all nodes");
    LIG_TRY(status);
    LIG_TRY(ligi_session_usable(&node->session));
    return call.status;
}

lig_status ligi_sync_settle(lig_params *node, int64_t timeout_ns)
{
    return wait_settled(node, 1, timeout_ns);
}

static lig_status wait_worker(lig_params_worker *worker, int everywhere, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);

    LIG_TRY(lig_params_wait_all(worker, timeout_ns));
    return wait_settled(worker->node, everywhere, ligi_time_left(deadline));
}

lig_status lig_params_wait_sync(lig_params_worker *worker, int64_t timeout_ns)
{
    return wait_worker(worker, 0, timeout_ns);
}

lig_status lig_params_flush(lig_params_worker *worker, int64_t timeout_ns)
{
    return wait_worker(worker, 1, timeout_ns);
}

lig_status lig_params_begin_setup(lig_params_worker *worker, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);

    LIG_TRY(lig_params_wait_sync(worker, timeout_ns));
    return lig_params_worker_barrier(worker, ligi_time_left(deadline));
}

/* The last barrier keeps later accesses out of the statistics that are reset. */
lig_status lig_params_end_setup(lig_params_worker *worker, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);

    LIG_TRY(lig_params_flush(worker, timeout_ns));
    LIG_TRY(lig_params_worker_barrier(worker, ligi_time_left(deadline)));
    if (worker->id == 0)
        LIG_TRY(lig_params_stats_reset(worker->node));
    return lig_params_worker_barrier(worker, ligi_time_left(deadline));
}
