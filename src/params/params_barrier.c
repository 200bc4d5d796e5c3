/* Meetings: of the workers of a node, and of nodes. */
#include "params/node.h"

#include "base/clock.h"

#define REASON_NS INT64_C(1000000000)

static int is_broken(void *context)
{
    return atomic_load(&((lig_params *)context)->broken);
}

/* All nodes. Without the lock. */
static lig_status meet_nodes(lig_params *node, int64_t timeout_ns)
{
    if (ligi_node_alone(node))
        return LIG_OK;
    LIG_TRY(ligi_node_check_others(node));
    pthread_rwlock_rdlock(&node->group_lock);
    lig_status status = node->group ? ligi_group_barrier(node->group, LIGI_SERVERS, 0, timeout_ns)
                                    : lig_fail(LIG_E_CLOSED, "this node has left the others");
    pthread_rwlock_unlock(&node->group_lock);
    /* The group may know who is missing before the link says why. */
    if (status == LIG_E_PEER)
        (void)ligi_net_wait(node->net, is_broken, node, REASON_NS);
    if ((status == LIG_E_PEER || status == LIG_E_CLOSED) && atomic_load(&node->broken))
        return ligi_failure_publish(&node->ended);
    return status;
}

lig_status lig_params_barrier(lig_params *node, int64_t timeout_ns)
{
    LIG_TRY(ligi_node_check(node));
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler takes no part in barriers");
    return meet_nodes(node, timeout_ns);
}

/* The last to come asks the others; the workers that wait here hear what it was told. */
static lig_status lead(lig_params *node)
{
    ligi_meet *meet = &node->meet;
    int64_t deadline = INT64_MAX;
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (meet->deadlines_ns[i] < deadline)
            deadline = meet->deadlines_ns[i];
    meet->leading = 1;
    pthread_mutex_unlock(&meet->lock);
    lig_status status = meet_nodes(node, ligi_time_left(deadline));
    pthread_mutex_lock(&meet->lock);
    ligi_failure_take(&meet->outcome, status);
    meet->leading = 0;
    meet->inside = 0;
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

/* Whoever has gone in is counted until all are there, or its time is over. */
static lig_status follow(lig_params *node, int64_t deadline_ns)
{
    ligi_meet *meet = &node->meet;
    uint32_t generation = meet->generation;
    int goes_on = 1;
    while (meet->generation == generation) {
        uint32_t missing = node->worker_count - meet->inside;
        lig_status status = LIG_OK;
        if (!meet->leading && atomic_load(&node->broken))
            status = ligi_failure_publish(&node->ended);
        else if (!meet->leading && ligi_time_left(deadline_ns) == 0)
            status = lig_fail(LIG_E_TIMEOUT, "%u of the %u workers of node %u have not come",
                              missing, node->worker_count, node->rank);
        else if (!meet->leading && !goes_on)
            status = lig_fail(LIG_E_CLOSED, "the barrier was given up");
        else if (!meet->leading && ligi_node_has_parted(node))
            status = lig_fail(LIG_E_CLOSED, "the parameters have been shut down");
        if (status != LIG_OK) {
            meet->inside--;
            return status;
        }
        goes_on = rest(node, deadline_ns);
    }
    return ligi_failure_publish(&meet->outcome);
}

lig_status lig_params_worker_barrier(lig_params_worker *worker, int64_t timeout_ns)
{
    lig_params *node = worker->node;
    ligi_meet *meet = &node->meet;
    int64_t deadline = ligi_time_until(timeout_ns);
    LIG_TRY(ligi_node_check_others(node));
    pthread_mutex_lock(&meet->lock);
    meet->deadlines_ns[worker->id] = deadline;
    lig_status status = ++meet->inside == node->worker_count ? lead(node) : follow(node, deadline);
    meet->deadlines_ns[worker->id] = INT64_MAX;
    pthread_mutex_unlock(&meet->lock);
    return status;
}
