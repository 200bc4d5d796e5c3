/* Rows of a unit, on the side of the nodes that have them; and which hashed keys are in which unit.
 */
#ifndef LIGI_SNAPSHOT_SERVE_H
#define LIGI_SNAPSHOT_SERVE_H

#include "params/snapshot/snapshot.h"

/* Hashed: how many rows of each unit begin here; `counts` has plan->unit_count. */
lig_status ligi_keep_count(ligi_keep_call *call, uint64_t *counts);
lig_status ligi_keep_index_make(lig_params *node, const ligi_keep_plan *plan,
                                ligi_keep_index *index);
void ligi_keep_index_fini(ligi_keep_index *index);

/* From peers; under the lock. A failing status loses the peer. */
lig_status ligi_keep_get(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_own(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_put(lig_params *node, uint32_t rank, const ligi_note *note);

#endif
