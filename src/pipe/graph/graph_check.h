/* Validates a caller's graph; each error message names the node. */
#ifndef LIGI_GRAPH_CHECK_H
#define LIGI_GRAPH_CHECK_H

#include "pipe/graph/graph.h"

/* Rejects invalid values, without checking for cycles. */
lig_status ligi_graph_check(const lig_pipe_graph *input);
const char *ligi_graph_node_name(const lig_pipe_graph *input, uint32_t node, char *text);

/* Fills `topological` (position -> node): the node numbers if they are a topological order, else
 * always the smallest node that can come next. LIG_E_INVALID names the nodes of a cycle. */
lig_status ligi_graph_order(const lig_pipe_graph *input, uint32_t *topological,
                            ligi_scratch *scratch);

#endif
