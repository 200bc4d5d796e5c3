#include "params/node/node_loss.h"

#include "params/requests/request_complete.h"
#include "params/state/node_grace.h"
#include "params/sync/sync_round.h"

#include <stdio.h>

void ligi_node_end_waits(lig_params *node)
{
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (node->workers[i])
            ligi_params_request_abandon(node->workers[i], node->ended.status, node->ended.text);
    if (node->made)
        ligi_sync_broken(node);
}

void ligi_node_peer_lost(ligi_params_peer *peer, int in_order, const char *why)
{
    char sentence[LIGI_WHY_TEXT + 64];
    lig_params *node = peer->node;
    if (peer->state == LIGI_PEER_GONE)
        return;
    peer->state = LIGI_PEER_GONE;
    snprintf(peer->why, sizeof peer->why, "%s", why ? why : "it has left");
    if (node->leaving && in_order)
        return;
    snprintf(sentence, sizeof sentence, "node %u %s: %s", peer->rank,
             in_order ? "has left" : "is lost", peer->why);
    ligi_node_break(node, LIG_E_PEER, sentence);
}

static void member_gone(lig_params *node, const ligi_member *member, const char *sentence)
{
    char why[LIGI_WHY_TEXT];
    if (member->role != LIGI_SERVER || member->rank >= node->node_count ||
        member->rank == node->rank)
        return;
    if (member->state == LIGI_LOST) {
        ligi_node_peer_lost(&node->peers[member->rank], 0, sentence);
        return;
    }
    snprintf(why, sizeof why, "node %u has left: %s", member->rank, sentence);
    ligi_node_doubt(node, why);
}

void ligi_node_member_changed(void *context, const ligi_group_event *event)
{
    lig_params *node = context;
    const char *sentence = event->sentence ? event->sentence : "reported by the group";
    char why[LIGI_WHY_TEXT];
    switch (event->change) {
    case LIGI_CHANGE_GONE: member_gone(node, &event->member, sentence); break;
    case LIGI_CHANGE_EXPELLED:
        snprintf(why, sizeof why, "node %u is unreachable: %s", node->rank, sentence);
        ligi_node_break_now(node, LIG_E_PEER, why);
        break;
    case LIGI_CHANGE_ORPHANED:
        snprintf(why, sizeof why, "node %u is unreachable: %s", node->rank, sentence);
        ligi_node_doubt(node, why);
        break;
    default: break;
    }
}
