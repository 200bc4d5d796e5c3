/* The longest common prefix of two model graphs. Pure: no I/O, no locks, no handles.
 *
 * A call is one use of a layer. A call of the query graph can be mapped to a call of the stored
 * one if their layers' signatures are equal and their inputs are, in order, calls (and outputs
 * of them) that are mapped to each other. The prefix is the largest set of layers under a
 * one-to-one mapping of calls such that every call of a layer of the set is mapped, all of them
 * to calls of one stored layer and to all of its calls, and all ancestors belong to the set too. */
#ifndef LIGI_LONGEST_PREFIX_H
#define LIGI_LONGEST_PREFIX_H

#include "base/hash.h"

#include <ligament/base.h>

#define LIGI_NO_CALL UINT32_MAX

typedef struct ligi_input {
    uint32_t call;   /* index of an earlier call */
    uint32_t output; /* which of its outputs */
} ligi_input;

typedef struct ligi_call {
    uint32_t layer;
    uint32_t input_first, input_count; /* in ligi_layer_graph.inputs */
} ligi_call;

typedef struct ligi_layer_graph {
    uint32_t layer_count, call_count, input_count;
    const ligi_hash128 *signatures; /* of each layer */
    const uint64_t *layer_bytes;    /* of each layer's tensors */
    const ligi_call *calls;         /* in topological order */
    const ligi_input *inputs;
} ligi_layer_graph;

/* LIG_E_INVALID unless every index is in range, calls come after their inputs, and every layer is
 * called. */
lig_status ligi_prefix_check(const ligi_layer_graph *graph);

/* Fills keys[call_count]: equal keys mean that signature, inputs and all their ancestors are
 * equal. */
lig_status ligi_prefix_keys(const ligi_layer_graph *graph, ligi_hash128 *keys);

typedef struct ligi_prefix {
    uint32_t layers; /* in the prefix */
    uint64_t bytes;  /* of their tensors */
} ligi_prefix;

/* Fills map[asking->layer_count] with the stored layer that equals each query layer, LIGI_NO_CALL
 * outside the prefix. The keys are those of ligi_prefix_keys. The largest mapping is found unless
 * similar branches lead to more than about ten thousand choices; then it is the best of those
 * tried. The result depends only on the arguments. */
lig_status ligi_prefix_match(const ligi_layer_graph *asking, const ligi_hash128 *asking_keys,
                             const ligi_layer_graph *stored, const ligi_hash128 *stored_keys,
                             uint32_t *map, ligi_prefix *prefix);

#endif
