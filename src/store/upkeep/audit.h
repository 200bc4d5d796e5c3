/* The catalog compared with itself: names, aliases and counts against the models' records. */
#ifndef LIGI_AUDIT_H
#define LIGI_AUDIT_H

#include "store/catalog/change.h"
#include "store/upkeep/report.h"

/* Adds what does not agree to the report. With `change` (may be NULL) it also gathers what mends
 * it, counted in *mended. */
lig_status ligi_audit(const ligi_catalog_view *view, ligi_change *change, ligi_report *report,
                      uint64_t *mended);

#endif
