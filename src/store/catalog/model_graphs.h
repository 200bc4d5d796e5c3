/* The graphs of one model, as bytes in its manifest and in the catalog. */
#ifndef LIGI_MODEL_GRAPHS_H
#define LIGI_MODEL_GRAPHS_H

#include "store/catalog/catalog_view.h"
#include "store/search/layer_graph.h"

#define LIGI_GRAPHS_MAX 8

/* Names are borrowed from the source. Zeroed is empty. */
typedef struct ligi_graphs {
    ligi_layers graphs[LIGI_GRAPHS_MAX];
    size_t count;
} ligi_graphs;

/* Converts a caller's graphs, which must have different kinds. All of these fill zeroed graphs;
 * call ligi_graphs_fini also after a failure. */
lig_status ligi_graphs_make(ligi_graphs *graphs, const lig_graph *from, size_t from_count,
                            const lig_tensor *tensors, size_t count);
/* Parses bytes that ligi_graphs_put wrote. LIG_E_CORRUPT if they are invalid. */
lig_status ligi_graphs_get(const void *bytes, size_t size, ligi_graphs *graphs);
/* The graphs of a model in the catalog, whose names are valid as long as the view; empty if it has
 * none. */
lig_status ligi_graphs_read(const ligi_catalog_view *view, uint64_t id, ligi_graphs *graphs);
void ligi_graphs_fini(ligi_graphs *graphs);

void ligi_graphs_put(ligi_writer *writer, const ligi_graphs *graphs);

/* The graph of that kind; NULL if there is none. */
const ligi_layers *ligi_graphs_kind(const ligi_graphs *graphs, const char *kind);

#endif
