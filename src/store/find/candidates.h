/* The models that may share the most with a graph, best first, using only the catalog's index. The
 * index gives an upper bound of what a model shares, so the search can stop as soon as its result
 * is better than the bound of the next candidate. */
#ifndef LIGI_CANDIDATES_H
#define LIGI_CANDIDATES_H

#include "store/catalog/catalog_view.h"
#include "store/catalog/search_index.h"
#include "store/find/match_order.h"

typedef struct ligi_candidates ligi_candidates;

typedef struct ligi_candidates_ask {
    const ligi_layers *layers;
    const lig_tag *tags;
    size_t tag_count;
    const uint64_t *exclude; /* ids */
    size_t exclude_count;
    const char *prefer; /* as in lig_find_options */
} ligi_candidates_ask;

/* Looks up the graph's keys. The view must outlive it. */
lig_status ligi_candidates_open(ligi_candidates **out, const ligi_catalog_view *view,
                                const ligi_candidates_ask *ask);
/* The next best; LIG_E_NOTFOUND, without an error text, at the end. */
lig_status ligi_candidates_next(ligi_candidates *candidates, ligi_candidate *next);
void ligi_candidates_close(ligi_candidates *candidates);

#endif
