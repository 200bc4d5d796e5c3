#include "params/state/node_grace.h"

#include "base/clock.h"
#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "group/roster/loss_grace.h"
#include "net/progress.h"
#include "net/service.h"

#include <stdio.h>

/* The whole job ends: the rows of the lost node exist only in the last save. */
void ligi_node_break_now(lig_params *node, lig_status status, const char *sentence)
{
    if (atomic_load(&node->broken))
        return;
    lig_fail(status, "%s", sentence);
    ligi_failure_take(&node->ended, status);
    atomic_store_explicit(&node->broken, 1, memory_order_release);
    node->lost(node);
    if (node->group)
        ligi_group_part(node->group, node->ended.text);
    pthread_mutex_lock(&node->barrier.lock);
    pthread_cond_broadcast(&node->barrier.changed);
    pthread_mutex_unlock(&node->barrier.lock);
    ligi_net_wake(node->net);
}

void ligi_node_doubt(lig_params *node, const char *sentence)
{
    if (node->leaving || node->doubt_ns != 0)
        return;
    node->doubt_ns = ligi_grace_end_ns(ligi_now_ns());
    snprintf(node->doubt, sizeof node->doubt, "%s", sentence);
    ligi_net_hurry(node->net, LIGI_SERVICE_PARAMS);
}

/* 1 if this node was stopped for so long that the group may have expelled it: it finds its links
 * closed, and the group's verdict takes precedence. */
static int is_waking(lig_params *node)
{
    return !node->leaving && node->group && ligi_group_waking(node->group);
}

void ligi_node_break(lig_params *node, lig_status status, const char *sentence)
{
    if (status == LIG_E_PEER && !atomic_load(&node->broken) && is_waking(node))
        ligi_node_doubt(node, sentence);
    else
        ligi_node_break_now(node, status, sentence);
}

int ligi_node_postpone(ligi_params_peer *peer, lig_status status, const char *why)
{
    char lost[LIGI_WHY_TEXT];
    if (status == LIG_E_MISMATCH || !is_waking(peer->node))
        return 0;
    snprintf(lost, sizeof lost, "node %u is lost: %.200s", peer->rank, why);
    ligi_node_doubt(peer->node, lost);
    return 1;
}

void ligi_node_end_doubt(lig_params *node, int64_t now_ns)
{
    if (ligi_grace_is_over(node->doubt_ns, now_ns))
        ligi_node_break_now(node, LIG_E_PEER, node->doubt);
}
