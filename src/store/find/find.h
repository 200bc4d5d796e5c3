/* The result of a search, for the modules that use a match. */
#ifndef LIGI_FIND_H
#define LIGI_FIND_H

#include "store/handle.h"
#include "store/search/layer_graph.h"

/* lig_store_find for a graph in the library's own form. */
lig_status ligi_find_layers(lig_store *store, const ligi_layers *asking,
                            const lig_find_options *options, lig_match ***matches, size_t *count);

/* A match found by a server. */
typedef struct ligi_match_parts {
    lig_ref *ref; /* ownership passes to the match, also on failure */
    const uint32_t *layers;
    size_t layer_count;
    const lig_matched_tensor *tensors; /* copied, names included */
    size_t tensor_count;
    uint64_t bytes;
    int64_t expires_ns;
} ligi_match_parts;
lig_status ligi_match_make(const ligi_match_parts *parts, lig_match **out);

/* The model behind a match, as a ref. LIG_E_INVALID if it was found in another store. */
lig_status ligi_match_ref(const lig_store *store, const lig_match *shown, const lig_ref **ref);

#endif
