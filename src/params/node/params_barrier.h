/* Barriers: of the workers of a node, and of all nodes. */
#ifndef LIGI_PARAMS_BARRIER_H
#define LIGI_PARAMS_BARRIER_H

#include "params/state/node.h"

/* All nodes; all workers of all nodes. No lock. */
lig_status ligi_node_barrier(lig_params *node, ligi_barrier_kind occasion, int64_t timeout_ns);
lig_status ligi_node_worker_barrier(lig_params_worker *worker, ligi_barrier_kind occasion,
                                    int64_t timeout_ns);

#endif
