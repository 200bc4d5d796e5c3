/* The search, for graphs that are in the library's own form already. */
#ifndef LIGI_FIND_H
#define LIGI_FIND_H

#include "store/handle.h"
#include "store/search/layer_graph.h"

/* lig_store_find without its check of the store and its time stamp. */
lig_status ligi_find_layers(lig_store *store, const ligi_layers *asking,
                            const lig_find_options *options, lig_match ***matches, size_t *count);

/* The model behind a match, as a ref. LIG_E_INVALID when it was found in another store. */
lig_status ligi_match_ref(const lig_store *store, const lig_match *shown, const lig_ref **ref);

#endif
