#include "params/node/node_leave.h"

#include "net/link/link.h"
#include "net/progress.h"
#include "params/node/node_connect.h"
#include "params/node/params_barrier.h"
#include "params/requests/request_serve.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_round.h"

#include <stdlib.h>

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
    ligi_net_lock(node->session.net);
    node->session.leaving = leaving;
    ligi_net_unlock(node->session.net);
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

lig_status lig_params_shutdown(lig_params *node, int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);
    ligi_failure failure = {0};
    LIG_TRY(ligi_session_check(&node->session));
    if (node->session.net) {
        if (node->tables && !node->departed) {
            lig_status status = agree(node, timeout_ns);
            if (status == LIG_E_TIMEOUT)
                return status;
            ligi_failure_take(&failure, status);
            ligi_session_disconnect(&node->session, "it has stopped");
            atomic_store_explicit(&node->departed, 1, memory_order_release);
            ligi_node_wake(node);
        }
        if (failure.status == LIG_OK)
            LIG_TRY(ligi_session_linger(&node->session, ligi_time_left(deadline)));
        ligi_session_leave(&node->session);
    }
    atomic_store_explicit(&node->session.closed, 1, memory_order_release);
    ligi_node_wake(node);
    return ligi_failure_publish(&failure);
}
