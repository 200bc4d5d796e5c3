#include "params/node/params_barrier.h"

#include "params/state/node.h"

#include "params/state/node_wait.h"

lig_status ligi_node_barrier(lig_params *node, ligi_barrier_kind occasion, int64_t timeout_ns)
{
    uint32_t flags = LIGI_BARRIER_STAGE((uint32_t)occasion);
    ligi_failure failure;
    if (ligi_node_alone(node))
        return LIG_OK;
    lig_status status = ligi_session_barrier(&node->session, LIGI_SERVERS, flags, timeout_ns);
    if (status != LIG_E_INVALID)
        return status;
    ligi_failure_take(&failure, status);
    return lig_fail(status, "%s: it has finalized or left", failure.text);
}

lig_status lig_params_barrier(lig_params *node, int64_t timeout_ns)
{
    LIG_TRY(ligi_session_check(&node->session));
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler cannot take part in barriers");
    return ligi_node_barrier(node, LIGI_BARRIER_PLAIN, timeout_ns);
}

/* The last worker to arrive waits for the other nodes; the workers that wait here get its
 * result. */
static lig_status lead(lig_params *node, ligi_barrier_kind occasion)
{
    ligi_node_barrier_state *barrier = &node->barrier;
    int64_t deadline = INT64_MAX;
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (barrier->deadlines_ns[i] < deadline)
            deadline = barrier->deadlines_ns[i];
    barrier->leading = 1;
    pthread_mutex_unlock(&barrier->lock);
    lig_status status = ligi_node_barrier(node, occasion, ligi_time_left(deadline));
    pthread_mutex_lock(&barrier->lock);
    ligi_failure_take(&barrier->outcome, status);
    barrier->leading = 0;
    barrier->inside[occasion] = 0;
    barrier->generation++;
    pthread_cond_broadcast(&barrier->changed);
    return status;
}

/* Sleeps until something changes, and polls `patience` in between; not with the lock held. */
static int rest(lig_params *node, int64_t deadline_ns)
{
    ligi_node_barrier_state *barrier = &node->barrier;
    int64_t wake = ligi_time_until(LIGI_PATIENCE_NS);
    if (!barrier->leading && deadline_ns < wake)
        wake = deadline_ns;
    struct timespec at = {.tv_sec = wake / 1000000000, .tv_nsec = wake % 1000000000};
    if (pthread_cond_timedwait(&barrier->changed, &barrier->lock, &at) == 0 ||
        node->patience == NULL)
        return 1;
    pthread_mutex_unlock(&barrier->lock);
    int goes_on = node->patience(node->patience_context);
    pthread_mutex_lock(&barrier->lock);
    return goes_on;
}

/* Why a worker must stop waiting. */
static lig_status check_wait(const lig_params *node, ligi_barrier_kind occasion,
                             int64_t deadline_ns, int goes_on)
{
    const ligi_node_barrier_state *barrier = &node->barrier;
    uint32_t ending = barrier->inside[LIGI_BARRIER_FINALIZE];
    if (barrier->leading)
        return LIG_OK;
    if (atomic_load(&node->session.broken))
        return ligi_failure_publish(&node->session.ended);
    if (occasion == LIGI_BARRIER_PLAIN && ending > 0)
        return lig_fail(LIG_E_INVALID,
                        "barrier cannot complete: %u of the %u workers of node %u have finalized",
                        ending, node->worker_count, node->rank);
    if (ligi_time_left(deadline_ns) == 0)
        return lig_fail(
            LIG_E_TIMEOUT, "barrier timed out: %u of the %u workers of node %u have not arrived",
            node->worker_count - barrier->inside[occasion], node->worker_count, node->rank);
    if (!goes_on)
        return lig_fail(LIG_E_CLOSED, "the barrier was cancelled");
    if (ligi_node_has_departed(node))
        return lig_fail(LIG_E_CLOSED, "the parameters have been shut down");
    return LIG_OK;
}

/* A worker that has entered is counted until all have arrived; leaving early would block the
 * others. */
static lig_status follow(lig_params *node, ligi_barrier_kind occasion, int64_t deadline_ns)
{
    ligi_node_barrier_state *barrier = &node->barrier;
    uint32_t generation = barrier->generation;
    int goes_on = 1;
    while (barrier->generation == generation) {
        lig_status status = check_wait(node, occasion, deadline_ns, goes_on);
        if (status != LIG_OK) {
            barrier->inside[occasion]--;
            return status;
        }
        goes_on = rest(node, deadline_ns);
    }
    return ligi_failure_publish(&barrier->outcome);
}

lig_status ligi_node_worker_barrier(lig_params_worker *worker, ligi_barrier_kind occasion,
                                    int64_t timeout_ns)
{
    lig_params *node = worker->node;
    ligi_node_barrier_state *barrier = &node->barrier;
    int64_t deadline = ligi_time_until(timeout_ns);
    LIG_TRY(ligi_session_usable(&node->session));
    pthread_mutex_lock(&barrier->lock);
    barrier->deadlines_ns[worker->id] = deadline;
    lig_status status;
    pthread_cond_broadcast(&barrier->changed); /* wakes workers at a barrier when one of them
                                                * finalizes */
    if (++barrier->inside[occasion] == node->worker_count)
        status = lead(node, occasion);
    else
        status = follow(node, occasion, deadline);
    barrier->deadlines_ns[worker->id] = INT64_MAX;
    pthread_mutex_unlock(&barrier->lock);
    return status;
}

lig_status lig_params_worker_barrier(lig_params_worker *worker, int64_t timeout_ns)
{
    return ligi_node_worker_barrier(worker, LIGI_BARRIER_PLAIN, timeout_ns);
}
