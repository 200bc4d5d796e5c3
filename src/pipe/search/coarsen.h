/* Smaller graphs whose acyclic assignments are acyclic assignments of the larger one. */
#ifndef LIGI_COARSEN_H
#define LIGI_COARSEN_H

#include "pipe/graph/graph.h"
#include "pipe/graph/random.h"

/* Fills cluster[unit] and returns the number of clusters: pairs of units joined by an edge, none
 * heavier than `load_most`. The quotient graph is acyclic by the choice of pairs, so no search for
 * cycles is needed. */
lig_status ligi_coarsen(const ligi_graph *graph, double load_most, ligi_random *random,
                        uint32_t *cluster, uint32_t *cluster_count);

/* Builds the graph of the clusters, and renumbers them in topological order. */
lig_status ligi_graph_contract(const ligi_graph *fine, uint32_t *cluster, uint32_t cluster_count,
                               ligi_graph *coarse, ligi_scratch *scratch);

#endif
