/* Calls that wait until writes are visible everywhere: flush, wait_sync, set-up. */
#ifndef LIGI_SYNC_FLUSH_H
#define LIGI_SYNC_FLUSH_H

#include "params/state/node.h"
#include "params/sync/sync_round.h"

/* For snapshots. No lock; called by one thread per node, while no worker pushes. On return all
 * pushes of this node's workers are in the owners' rows, and all replicas of rows that are dirty
 * here are up to date. */
lig_status ligi_sync_settle(lig_params *node, int64_t timeout_ns);

/* A message about flushing. Under the lock. */
lig_status ligi_sync_flush_arrived(lig_params *node, uint32_t from,
                                   const ligi_params_message *message);

#endif
