/* The graph as the partitioner uses it: units instead of nodes, nets instead of edges.
 *
 * A unit is a node, or nodes that must share a stage. Units are numbered in a topological order
 * (the given one if node numbers are one), so that "before" is "smaller". A net is one value: a
 * source and the units that use it, each once. The cut of an assignment is the sum over nets of
 * bytes * (stages of its users other than the source's). */
#ifndef LIGI_GRAPH_H
#define LIGI_GRAPH_H

#include <ligament/pipe.h>

#include "pipe/graph/scratch.h"

typedef struct ligi_graph {
    uint32_t unit_count;
    uint32_t net_count;
    uint32_t *unit_of;   /* [node_count] */
    uint32_t *member;    /* [unit_count]: one node of the unit, for error messages */
    double *load;        /* [unit_count], milliseconds at speed 1 */
    double *fixed;       /* resident bytes: parameters with their optimizer state, buffers */
    double *flight;      /* bytes per micro-batch in flight */
    uint32_t *out_begin; /* [unit_count + 1]: the nets whose source is the unit */
    uint32_t *source;    /* [net_count] */
    double *bytes;
    uint32_t *pin_begin; /* [net_count + 1] */
    uint32_t *pin;
    uint32_t *in_begin; /* [unit_count + 1]: the nets a unit uses */
    uint32_t *in_net;
    uint32_t *apart_begin; /* [unit_count + 1], or NULL if nothing is kept apart */
    uint32_t *apart;
    double load_sum;
    double load_max;
} ligi_graph;

/* "'layer.3'" or "node 17", into `text`. */
#define LIGI_NODE_NAME_BYTES 96

/* Builds the graph of units in memory of `scratch`, from a checked graph. */
lig_status ligi_graph_make(const lig_pipe_graph *input, const lig_pipe_options *options,
                           ligi_graph *graph, ligi_scratch *scratch);

/* The cut of an assignment, computed from scratch. `seen` has stage_count words. */
double ligi_graph_cut(const ligi_graph *graph, const uint32_t *stage, uint32_t stage_count,
                      uint32_t *seen);

#endif
