#include "params/node/node_leave.h"

#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "net/link/link.h"
#include "net/progress.h"
#include "params/node/node_connect.h"
#include "params/node/params_barrier.h"
#include "params/requests/request_serve.h"
#include "params/state/node_check.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_round.h"

#include <stdlib.h>

#define MISMATCH_NS INT64_C(2000000000)

static void end_links(lig_params *node)
{
    const char *reason = atomic_load(&node->broken) ? node->ended.text : "it has left";
    ligi_net_lock(node->net);
    node->leaving = 1;
    for (uint32_t i = 0; i < node->node_count; i++) {
        ligi_params_peer *peer = &node->peers[i];
        ligi_link *link = peer->link;
        peer->link = NULL;
        if (link)
            ligi_link_close(link, reason);
        peer->state = LIGI_PEER_GONE;
    }
    ligi_net_unlock(node->net);
    ligi_net_wake(node->net);
}

static void end_group(lig_params *node)
{
    pthread_rwlock_wrlock(&node->group_lock);
    ligi_group *group = node->group;
    if (group) {
        ligi_net_lock(node->net);
        ligi_group_watch(group, NULL, NULL);
        node->group = NULL;
        ligi_net_unlock(node->net);
        ligi_group_close(group, 0);
    }
    pthread_rwlock_unlock(&node->group_lock);
}

void ligi_node_leave(lig_params *node)
{
    if (node->group)
        ligi_group_part(node->group, "this node has left the job");
    if (node->peers)
        end_links(node);
    /* If a coordinator left at once, the others would see its loss before the reason. */
    if (atomic_load(&node->broken) && node->ended.status == LIG_E_MISMATCH && node->group)
        (void)ligi_group_linger(node->group, MISMATCH_NS);
    end_group(node);
}

void ligi_node_free_peers(lig_params *node)
{
    for (uint32_t i = 0; node->peers && i < node->node_count; i++) {
        ligi_params_peer *peer = &node->peers[i];
        if (peer->mapping)
            ligi_mapping_drop(peer->mapping);
        free(peer->inbox);
    }
    free(node->peers);
    node->peers = NULL;
    ligi_serve_scratch_fini(&node->serve_scratch);
}

static void set_leaving(lig_params *node, int leaving)
{
    ligi_net_lock(node->net);
    node->leaving = leaving;
    ligi_net_unlock(node->net);
}

/* After this no other node sends requests to this one. */
static lig_status agree(lig_params *node, int64_t timeout_ns)
{
    ligi_node_lock(node); /* a worker may be closed concurrently */
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (node->workers[i])
            ligi_sync_finalize(node->workers[i]);
    ligi_node_unlock(node);
    set_leaving(node, 1);
    lig_status status = ligi_node_barrier(node, LIGI_BARRIER_SHUTDOWN, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        set_leaving(node, 0);
    return status;
}

static lig_status linger(lig_params *node, int64_t timeout_ns)
{
    pthread_rwlock_rdlock(&node->group_lock);
    lig_status status = node->group ? ligi_group_linger(node->group, timeout_ns) : LIG_OK;
    pthread_rwlock_unlock(&node->group_lock);
    return status;
}

lig_status lig_params_shutdown(lig_params *node, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);
    ligi_failure failure = {0};
    LIG_TRY(ligi_node_check(node));
    if (node->net) {
        if (node->tables && !node->departed) {
            lig_status status = agree(node, timeout_ns);
            if (status == LIG_E_TIMEOUT)
                return status;
            ligi_failure_take(&failure, status);
            end_links(node);
            atomic_store_explicit(&node->departed, 1, memory_order_release);
            ligi_node_wake(node);
        }
        if (failure.status == LIG_OK)
            LIG_TRY(linger(node, ligi_time_left(deadline)));
        end_group(node);
    }
    atomic_store_explicit(&node->stopped, 1, memory_order_release);
    ligi_node_wake(node);
    return ligi_failure_publish(&failure);
}
