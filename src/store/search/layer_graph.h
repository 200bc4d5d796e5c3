/* A model's graph as it is stored and compared: checked, in topological order, with a hash for each
 * signature. */
#ifndef LIGI_LAYER_GRAPH_H
#define LIGI_LAYER_GRAPH_H

#include "base/codec.h"
#include "store/search/longest_prefix.h"

#include <ligament/store.h>

#define LIGI_KIND_BYTES_MAX 64
#define LIGI_LAYERS_MAX (UINT32_C(1) << 20) /* of layers, calls and inputs of one graph */

/* Owns its arrays; strings are borrowed from the source. */
typedef struct ligi_layers {
    const char *kind;
    const char **names; /* of each layer */
    ligi_layer_graph graph;
    ligi_hash128 *keys; /* of each call: ligi_prefix_keys */
    void *memory;
} ligi_layers;

/* Converts a caller's graph; an invalid graph, such as one with a cycle, is refused with an
 * error that names the layer. `tensors` determine the layers' bytes. Fills a zeroed struct; call
 * ligi_layers_fini also after a failure. */
lig_status ligi_layers_make(ligi_layers *layers, const lig_graph *graph, const lig_tensor *tensors,
                            size_t count);
void ligi_layers_fini(ligi_layers *layers);

void ligi_layers_put(ligi_writer *writer, const ligi_layers *layers);
/* LIG_E_CORRUPT if the bytes are not a graph. */
lig_status ligi_layers_get(ligi_reader *reader, ligi_layers *layers);

/* The layer that owns the tensor of that name; `index` maps layer names to their numbers.
 * LIGI_NO_CALL for none. */
struct ligi_map;
lig_status ligi_layers_index(const ligi_layers *layers, struct ligi_map *index);
uint32_t ligi_layer_of(const struct ligi_map *index, const char *tensor);

/* Fills keys[layer_count]: two graphs of one kind share at most as many layers as keys. Equal
 * layers of one graph get different keys; the k-th of them has the same key in both graphs. */
lig_status ligi_layers_keys(const ligi_layers *layers, ligi_hash128 *keys);

#endif
