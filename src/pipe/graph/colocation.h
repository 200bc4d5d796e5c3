/* Determines which nodes must share a stage: groups, tied users, and the nodes on a path between
 * them. */
#ifndef LIGI_COLOCATION_H
#define LIGI_COLOCATION_H

#include "pipe/graph/graph.h"

/* Fills unit_of[node] and the number of units, numbered in a topological order. LIG_E_INVALID for a
 * cycle. */
lig_status ligi_contract(const lig_pipe_graph *input, const lig_pipe_options *options,
                         uint32_t *unit_of, uint32_t *unit_count, ligi_scratch *scratch);

#endif
