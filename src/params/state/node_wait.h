/* The lock of a node, and waiting. */
#ifndef LIGI_NODE_WAIT_H
#define LIGI_NODE_WAIT_H

#include "base/clock.h"
#include "params/state/node.h"

void ligi_node_lock(lig_params *node);
void ligi_node_unlock(lig_params *node);

/* Drives net until until(context) is not 0 (called with the lock held; it must check whether the
 * session is broken if it depends on other nodes), or, on a single node, waits for a broadcast of
 * `changed`. LIG_FOREVER: no timeout; 0 checks once. LIG_E_CLOSED: the node has left, or `patience`
 * has ended the call. */
lig_status ligi_node_wait(lig_params *node, int (*until)(void *context), void *context,
                          int64_t timeout_ns);
/* Wakes waiting threads after a change outside a hook. */
void ligi_node_wake(lig_params *node);

#endif
