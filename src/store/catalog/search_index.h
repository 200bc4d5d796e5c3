/* The catalog's index: which models have a layer (with all its ancestors) or a tag, and their
 * metrics. It is updated in the same commit as the models, so that a search sees exactly the
 * stored models. */
#ifndef LIGI_SEARCH_INDEX_H
#define LIGI_SEARCH_INDEX_H

#include "store/format/record.h"
#include "store/search/layer_graph.h"
#include "store/search/postings.h"

struct ligi_graphs;

/* Metrics are stored in columns, one for each name, in chunks of this many ids. */
#define LIGI_COLUMN_IDS 128u

ligi_catalog_key ligi_catalog_key_posting(const ligi_hash128 *key, uint64_t chunk);
ligi_catalog_key ligi_catalog_key_column(const char *name, uint64_t chunk);
ligi_hash128 ligi_tag_key(const char *name, const char *value);
/* The set of models whose layers have other sizes than their postings state. */
ligi_hash128 ligi_irregular_key(void);
/* The column with the creation times. No metric can have this name. */
#define LIGI_CREATED_COLUMN                                                                        \
    "\x01"                                                                                         \
    "created"

/* One change of a posting or a column. They are gathered first and applied together, because one
 * commit may remove a model from a set and add another. */
typedef struct ligi_search_index_edit {
    ligi_catalog_key key;
    uint32_t offset; /* in the chunk */
    uint32_t order;  /* in which it was requested */
    int present;
    uint64_t bytes; /* of the layer; postings only */
    double value;   /* columns only */
} ligi_search_index_edit;

typedef struct ligi_search_index_edits {
    ligi_search_index_edit *edits;
    size_t count, capacity;
} ligi_search_index_edits;

/* For qsort: by key, then in the order in which they were requested. */
int ligi_search_index_order(const void *left, const void *right);
/* Adds (present 1) or removes (0) all index entries of a model. */
lig_status ligi_search_index_model(ligi_search_index_edits *edits, const ligi_about *about,
                                   const struct ligi_graphs *graphs, int present);

/* The source and destination of postings and columns. */
typedef struct ligi_search_index_sink {
    lig_status (*get)(void *context, const ligi_catalog_key *key,
                      lig_catalog_item *item); /* LIG_E_NOTFOUND: none */
    lig_status (*put)(void *context, const ligi_catalog_key *key,
                      const ligi_writer *value); /* NULL erases */
    const void *secret;
    void *context;
} ligi_search_index_sink;

/* Applies all edits. */
lig_status ligi_search_index_apply(ligi_search_index_edits *edits,
                                   const ligi_search_index_sink *sink);
void ligi_search_index_edits_fini(ligi_search_index_edits *edits);

/* A posting that was read: the bytes of the layer's tensors, and the models that have it. */
typedef struct ligi_posting {
    uint64_t bytes;
    ligi_bitmap set;
} ligi_posting;
lig_status ligi_posting_get(const lig_catalog_item *item, const void *secret,
                            ligi_posting *posting);
/* values[LIGI_COLUMN_IDS]; NaN if a model has none. */
lig_status ligi_column_get(const lig_catalog_item *item, const void *secret, double *values);

#endif
