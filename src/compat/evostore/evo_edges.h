/* A flat list of pairs of layers as the graph that a store compares. Pure. */
#ifndef LIGI_EVO_EDGES_H
#define LIGI_EVO_EDGES_H

#include <ligament/store.h>

typedef struct ligi_evo_graph {
    lig_graph graph; /* one call for each layer, in the order of their first mention */
    uint64_t *ids;   /* of the layers */
    void *parts[5];  /* the memory behind `graph` */
} ligi_evo_graph;

/* `words` is twice the number of pairs. Layers on a cycle, and those after one, match nothing; a
 * stored graph and a query graph mark them differently. */
lig_status ligi_evo_graph_make(const uint64_t *edges, size_t words, int asking,
                               ligi_evo_graph *out);
void ligi_evo_graph_fini(ligi_evo_graph *graph);

#endif
