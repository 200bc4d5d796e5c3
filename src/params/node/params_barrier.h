/* Meetings: of the workers of a node, and of nodes. */
#ifndef LIGI_PARAMS_BARRIER_H
#define LIGI_PARAMS_BARRIER_H

#include "params/state/node_state.h"

/* All nodes; all workers of all nodes. No lock. */
lig_status ligi_node_meet(lig_params *node, ligi_occasion occasion, int64_t timeout_ns);
lig_status ligi_worker_meet(lig_params_worker *worker, ligi_occasion occasion, int64_t timeout_ns);

#endif
