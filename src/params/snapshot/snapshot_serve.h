/* Rows of a unit, on the side of the nodes that own them; and the index of hashed keys by unit. */
#ifndef LIGI_SNAPSHOT_SERVE_H
#define LIGI_SNAPSHOT_SERVE_H

#include "params/snapshot/snapshot.h"

/* Hashed: the number of rows of each unit whose home is here; `counts` has plan->unit_count. */
lig_status ligi_params_snapshot_count(ligi_snapshot_call *call, uint64_t *counts);
lig_status ligi_params_snapshot_index_make(lig_params *node, const ligi_snapshot_plan *plan,
                                           ligi_snapshot_index *index);
void ligi_params_snapshot_index_fini(ligi_snapshot_index *index);

/* Requests from peers; under the lock. On failure the peer is lost. */
lig_status ligi_params_snapshot_get(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_own(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content);
lig_status ligi_params_snapshot_put(lig_params *node, uint32_t rank,
                                    const ligi_snapshot_message *content);

#endif
