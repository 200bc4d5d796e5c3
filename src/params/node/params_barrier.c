#include "params/node/params_barrier.h"

#include "params/state/node_state.h"

#include "base/clock.h"

#define REASON_NS INT64_C(1000000000)

static int is_broken(void *context)
{
    return atomic_load(&((lig_params *)context)->broken);
}

lig_status ligi_node_meet(lig_params *node, ligi_occasion occasion, int64_t timeout_ns)
{
    uint32_t flags = LIGI_BARRIER_STAGE((uint32_t)occasion);
    if (ligi_node_alone(node))
        return LIG_OK;
    ligi_failure failure;
    LIG_TRY(ligi_node_check_others(node));
    pthread_rwlock_rdlock(&node->group_lock);
    lig_status status = node->group
                            ? ligi_group_barrier(node->group, LIGI_SERVERS, flags, timeout_ns)
                            : lig_fail(LIG_E_CLOSED, "this node has left the others");
    pthread_rwlock_unlock(&node->group_lock);
    /* The group may know who is missing before the link says why. */
    if (status == LIG_E_PEER)
        (void)ligi_net_wait(node->net, is_broken, node, REASON_NS);
    if ((status == LIG_E_PEER || status == LIG_E_CLOSED) && atomic_load(&node->broken))
        return ligi_failure_publish(&node->ended);
    if (status == LIG_E_INVALID) {
        ligi_failure_take(&failure, status);
        return lig_fail(status, "%s: it finalizes, or leaves", failure.text);
    }
    return status;
}

lig_status lig_params_barrier(lig_params *node, int64_t timeout_ns)
{
    LIG_TRY(ligi_node_check(node));
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler takes no part in barriers");
    return ligi_node_meet(node, LIGI_AT_BARRIER, timeout_ns);
}

/* The last to come asks the others; the workers that wait here hear what it was told. */
static lig_status lead(lig_params *node, ligi_occasion occasion)
{
    ligi_meet *meet = &node->meet;
    int64_t deadline = INT64_MAX;
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (meet->deadlines_ns[i] < deadline)
            deadline = meet->deadlines_ns[i];
    meet->leading = 1;
    pthread_mutex_unlock(&meet->lock);
    lig_status status = ligi_node_meet(node, occasion, ligi_time_left(deadline));
    pthread_mutex_lock(&meet->lock);
    ligi_failure_take(&meet->outcome, status);
    meet->leading = 0;
    meet->inside[occasion] = 0;
    meet->generation++;
    pthread_cond_broadcast(&meet->changed);
    return status;
}

/* Sleeps until something changes, and asks now and then whether to go on; not with the lock. */
static int rest(lig_params *node, int64_t deadline_ns)
{
    ligi_meet *meet = &node->meet;
    int64_t wake = ligi_time_until(LIGI_PATIENCE_NS);
    if (!meet->leading && deadline_ns < wake)
        wake = deadline_ns;
    struct timespec at = {.tv_sec = wake / 1000000000, .tv_nsec = wake % 1000000000};
    if (pthread_cond_timedwait(&meet->changed, &meet->lock, &at) == 0 || node->patience == NULL)
        return 1;
    pthread_mutex_unlock(&meet->lock);
    int goes_on = node->patience(node->patience_context);
    pthread_mutex_lock(&meet->lock);
    return goes_on;
}

/* Why a worker is not to wait any longer. */
static lig_status check_wait(const lig_params *node, ligi_occasion occasion, int64_t deadline_ns,
                             int goes_on)
{
    const ligi_meet *meet = &node->meet;
    uint32_t ending = meet->inside[LIGI_AT_FINALIZE];
    if (meet->leading)
        return LIG_OK;
    if (atomic_load(&node->broken))
        return ligi_failure_publish(&node->ended);
    if (occasion == LIGI_AT_BARRIER && ending > 0)
        return lig_fail(LIG_E_INVALID,
                        "the barrier cannot be: %u of the %u workers of node %u finalize, and come "
                        "to no barrier any more",
                        ending, node->worker_count, node->rank);
    if (ligi_time_left(deadline_ns) == 0)
        return lig_fail(LIG_E_TIMEOUT, "%u of the %u workers of node %u have not come",
                        node->worker_count - meet->inside[occasion], node->worker_count,
                        node->rank);
    if (!goes_on)
        return lig_fail(LIG_E_CLOSED, "the barrier was given up");
    if (ligi_node_has_parted(node))
        return lig_fail(LIG_E_CLOSED, "the parameters have been shut down");
    return LIG_OK;
}

/* Whoever has gone in is counted until all are there, or it waits in vain. */
static lig_status follow(lig_params *node, ligi_occasion occasion, int64_t deadline_ns)
{
    ligi_meet *meet = &node->meet;
    uint32_t generation = meet->generation;
    int goes_on = 1;
    while (meet->generation == generation) {
        lig_status status = check_wait(node, occasion, deadline_ns, goes_on);
        if (status != LIG_OK) {
            meet->inside[occasion]--;
            return status;
        }
        goes_on = rest(node, deadline_ns);
    }
    return ligi_failure_publish(&meet->outcome);
}

lig_status ligi_worker_meet(lig_params_worker *worker, ligi_occasion occasion, int64_t timeout_ns)
{
    lig_params *node = worker->node;
    ligi_meet *meet = &node->meet;
    int64_t deadline = ligi_time_until(timeout_ns);
    LIG_TRY(ligi_node_check_others(node));
    pthread_mutex_lock(&meet->lock);
    meet->deadlines_ns[worker->id] = deadline;
    lig_status status;
    pthread_cond_broadcast(&meet->changed); /* those at a barrier hear of one who ends */
    if (++meet->inside[occasion] == node->worker_count)
        status = lead(node, occasion);
    else
        status = follow(node, occasion, deadline);
    meet->deadlines_ns[worker->id] = INT64_MAX;
    pthread_mutex_unlock(&meet->lock);
    return status;
}

lig_status lig_params_worker_barrier(lig_params_worker *worker, int64_t timeout_ns)
{
    return ligi_worker_meet(worker, LIGI_AT_BARRIER, timeout_ns);
}
