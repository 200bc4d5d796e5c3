/* Calls that wait until writes are visible everywhere: flush, wait_sync, set-up. */
#ifndef LIGI_SYNC_FLUSH_H
#define LIGI_SYNC_FLUSH_H

#include "params/state/node_state.h"
#include "params/sync/sync_round.h"

/* For snapshots. No lock; called by one thread of each of the nodes, while no worker
 * pushes. On return all that this node's workers pushed is in the owners' rows, and all rows dirty
 * here that others have replicas of are in those replicas. */
lig_status ligi_sync_settle(lig_params *node, int64_t timeout_ns);

/* A message about flushing. Under the lock. */
lig_status ligi_sync_flush_arrived(lig_params *node, uint32_t from,
                                   const ligi_params_message *message);

#endif
