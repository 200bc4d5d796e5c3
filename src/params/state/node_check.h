/* Whether a call may proceed: checks at the start of every call. */
#ifndef LIGI_NODE_CHECK_H
#define LIGI_NODE_CHECK_H

#include "params/state/node.h"

/* 0 in a forked child. */
int ligi_node_is_here(const lig_params *node);
/* CLOSED in a forked child and after shutdown. */
lig_status ligi_node_check(const lig_params *node);
/* Also LIG_E_PEER if a node is lost: for calls that need the others. With or without the lock. */
lig_status ligi_node_check_others(lig_params *node);
/* 1 if shutdown has advanced so far that nothing can be waited for. With or without the lock. */
int ligi_node_has_departed(const lig_params *node);

#endif
