/* The end of a job when a node is lost, and the grace period before it (group/roster/loss_grace.h):
 * a suspected node counts as lost when nobody has given a better reason by then. */
#ifndef LIGI_NODE_GRACE_H
#define LIGI_NODE_GRACE_H

#include "params/state/node.h"

/* A node is lost: every wait ends. Under the lock, like all below. */
void ligi_node_break_now(lig_params *node, lig_status status, const char *sentence);
/* The same, but only suspects the peer while this node may have been expelled itself. */
void ligi_node_break(lig_params *node, lig_status status, const char *sentence);
/* A peer has left unexpectedly, mostly because it has heard of a loss before this node did. Waits
 * 200 ms for the reason, from another link or from the group; then the node breaks. */
void ligi_node_doubt(lig_params *node, const char *sentence);
/* The link to a peer has ended. 1 if the peer is only suspected for now, since this node is waking:
 * the link is kept until then. */
int ligi_node_postpone(ligi_params_peer *peer, lig_status status, const char *why);
/* A departure without an explanation counts as a loss after a delay. From net's tick. */
void ligi_node_end_doubt(lig_params *node, int64_t now_ns);

#endif
