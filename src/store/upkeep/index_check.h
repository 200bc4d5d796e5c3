/* The index compared with the graphs, tags and metrics from which it was built. */
#ifndef LIGI_INDEX_CHECK_H
#define LIGI_INDEX_CHECK_H

#include "store/catalog/change.h"
#include "store/upkeep/report.h"

/* Adds inconsistencies to the report. With `change` (may be NULL) it also gathers a rebuilt
 * index if there are any, counted in *mended. */
lig_status ligi_index_check(const ligi_catalog_view *view, ligi_change *change, ligi_report *report,
                            uint64_t *mended);

#endif
