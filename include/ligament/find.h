/* Ligament: search for the stored models that share the most layers with another. Part of store.h. */
#ifndef LIGAMENT_FIND_H
#define LIGAMENT_FIND_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model's graph: layers, and calls of them. Two layers are equal if their signatures are equal byte for byte.
 * A tensor belongs to the layer with the longest name that equals the tensor's name or is a prefix of it
 * followed by '.' or '/'. */
typedef struct lig_layer {
    const char *name;
    const void *signature;
    size_t signature_bytes; /* or LIG_SIGNATURE_HASHED */
} lig_layer;

/* The signature is the 16 bytes of a hash, as lig_ref_graphs returns it. */
#define LIG_SIGNATURE_HASHED SIZE_MAX
#define LIG_SIGNATURE_HASH_BYTES 16

typedef struct lig_input {
    uint32_t call, output; /* output number `output` of call number `call` */
} lig_input;

typedef struct lig_call { /* one call of a layer; without inputs it is a root */
    uint32_t layer, input_count;
    const lig_input *inputs; /* in the order of the layer's inputs */
} lig_call;

typedef struct lig_graph {
    const char *kind; /* producer and version: only graphs of one kind are compared; at most 64 bytes */
    const lig_layer *layers;
    const lig_call *calls; /* in any order; a cycle is LIG_E_INVALID */
    size_t layer_count, call_count;
} lig_graph;

typedef struct lig_find_options {
    uint32_t struct_bytes; /* set by LIG_FIND_INIT */
    uint32_t flags;
    const lig_tag *tags; /* all must be present */
    size_t tag_count;
    const char *const *exclude; /* names of models to exclude */
    size_t exclude_count;
    const char *prefer; /* a metric: higher is better, or lower with a leading '-'; NULL: none */
    size_t limit;       /* how many to return; 0 means 1 */
    int64_t lease_ns;   /* how long a match pins its tensors; 0: one hour */
} lig_find_options;
#define LIG_FIND_INIT {sizeof(lig_find_options), 0, NULL, 0, NULL, 0, NULL, 1, 0}

typedef struct lig_matched_tensor {
    const char *name; /* in the model given */
    size_t stored;    /* index in model->tensors */
} lig_matched_tensor;

/* A match is a lease: the tensors it names stay loadable until it is released, expires, or its process ends. */
typedef struct lig_match {
    const lig_model *model; /* including its tensors */
    size_t layer_count, tensor_count;
    const uint32_t *layers; /* indexes of the shared layers in the given graph, ascending */
    const lig_matched_tensor *tensors;
    uint64_t bytes;            /* of those tensors */
    int64_t expires_ns;        /* since 1970; 0: not pinned, because the store is read-only */
    const struct lig_ref *ref; /* the model as a ref (ref.h), borrowed from the match; valid as long as the
                                * match */
} lig_match;

/* The models that share the most with `graph`, best first: more layers, then more bytes, then the preferred
 * metric, then newer. *count is 0 if none shares a root. Returns *matches (lig_matches_destroy, which also
 * releases). */
LIG_API lig_status lig_store_find(lig_store *store, const lig_graph *graph, const lig_find_options *options,
                                  lig_match ***matches, size_t *count);

/* The same for a stored model, using the first of the graphs it was saved with; the model itself is not among the
 * results. Layers and names of a match are those of `model`. LIG_E_INVALID if it has no graph. */
LIG_API lig_status lig_store_find_like(lig_store *store, const char *model, const lig_find_options *options,
                                       lig_match ***matches, size_t *count);
/* The graphs that a model was saved with, to save or search it elsewhere; 0 if it has none. Returns *graphs
 * (lig_graphs_destroy), independent of the ref. */
LIG_API lig_status lig_ref_graphs(const struct lig_ref *ref, lig_graph **graphs, size_t *count);
LIG_API void lig_graphs_destroy(lig_graph *graphs);

LIG_API void lig_match_release(lig_match *match);
LIG_API void lig_matches_destroy(lig_match **matches, size_t count);

/* Like lig_store_load for the tensors of a match, under the names of the given model. */
LIG_API lig_status lig_store_load_match(lig_store *store, const lig_match *match, const lig_tensor *tensors,
                                        size_t count);

#ifdef __cplusplus
}
#endif
#endif
