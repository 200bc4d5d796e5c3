/* When a node is declared lost: its link has ended, or the group reports it. The job ends with it,
 * since its rows exist only in the last snapshot. Under the lock. */
#ifndef LIGI_NODE_LOSS_H
#define LIGI_NODE_LOSS_H

#include "params/state/node.h"

/* The node's `lost` hook: requests of workers fail, sync ends. */
void ligi_node_end_waits(lig_params *node);
/* The link to a peer has ended (`in_order`: closed by the peer), or the group has lost the peer. */
void ligi_node_peer_lost(ligi_params_peer *peer, int in_order, const char *why);
/* An event of the group; `context` is the node. */
void ligi_node_member_changed(void *context, const ligi_group_event *event);

#endif
