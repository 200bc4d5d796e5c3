/* When a node is declared lost: its link has ended, or the group says so. The job ends with it,
 * since rows that it had are in the last snapshot alone. Under the lock. */
#ifndef LIGI_NODE_LOSS_H
#define LIGI_NODE_LOSS_H

#include "params/state/node_state.h"

/* The hook `lost` of a node: requests of workers fail, sync ends. */
void ligi_node_end_waits(lig_params *node);
/* The link to a peer has ended (`in_order`: the peer closed it), or the group has lost it. */
void ligi_node_peer_lost(ligi_params_peer *peer, int in_order, const char *why);
/* An event of the group; `context` is the node. */
void ligi_node_member_changed(void *context, const ligi_group_event *event);
/* A departure that nobody has explained in time is a loss. From net's tick. */
void ligi_node_end_doubt(lig_params *node, int64_t now_ns);

#endif
