/* Models that were retired and are kept until a date: table 13 of the catalog (docs/formats.md). A
 * retired model has no name, no aliases and no entries in the search index. Its packs are counted
 * as if it were still a model. */
#ifndef LIGI_RETIRED_MODELS_H
#define LIGI_RETIRED_MODELS_H

#include "store/catalog/catalog_view.h"

/* Bytes are borrowed from the catalog's item. */
typedef struct ligi_retired {
    uint64_t id;
    int64_t until_ns;                      /* since 1970; then it may be removed */
    const void *record, *graphs, *inlined; /* the record's value; as ligi_graphs_put writes them;
                                            * the value of an inline model */
    size_t record_bytes, graph_bytes, inline_bytes;
} ligi_retired;

void ligi_retired_put(ligi_writer *writer, const ligi_retired *retired, const void *secret);
lig_status ligi_retired_get(const lig_catalog_item *item, const void *secret,
                            ligi_retired *retired);
/* Fills a zeroed record; strings are borrowed. */
lig_status ligi_retired_record(const ligi_retired *retired, const void *secret,
                               ligi_record *record);

/* Fills the record of a model in the view that is to be kept. */
lig_status ligi_retired_take(const ligi_catalog_view *view, const ligi_record *record,
                             ligi_retired *retired);

/* Walks the table: 1 while there is one, whose record is filled (ligi_record_fini); 0 at the end;
 * *status reports a failure. Damaged ones are skipped. */
int ligi_retired_next(const ligi_catalog_view *view, ligi_walk *walk, ligi_retired *retired,
                      ligi_record *record, lig_status *status);

#endif
