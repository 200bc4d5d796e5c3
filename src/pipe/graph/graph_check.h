/* Everything a caller can get wrong in a graph, each with a sentence that names the node. */
#ifndef LIGI_GRAPH_CHECK_H
#define LIGI_GRAPH_CHECK_H

#include "pipe/graph/graph.h"

/* Refuses what makes no sense, without looking at cycles. */
lig_status ligi_graph_check(const lig_pipe_graph *input);
const char *ligi_graph_node_name(const lig_pipe_graph *input, uint32_t node, char *text);

/* Fills `topological` (position -> node): node numbers themselves where they are an order, else the
 * smallest node that can come next. LIG_E_INVALID names the nodes of a cycle. */
lig_status ligi_graph_order(const lig_pipe_graph *input, uint32_t *topological,
                            ligi_scratch *scratch);

#endif
