/* Consistency of the catalog: names, aliases and counts compared with the models' records. */
#ifndef LIGI_AUDIT_H
#define LIGI_AUDIT_H

#include "store/catalog/change.h"
#include "store/upkeep/report.h"

/* Adds inconsistencies to the report. With `change` (may be NULL) it also gathers their repairs,
 * counted in *mended. */
lig_status ligi_audit(const ligi_catalog_view *view, ligi_change *change, ligi_report *report,
                      uint64_t *mended);

#endif
