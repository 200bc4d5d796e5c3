/* Models that a damaged log has lost and that can be restored from their packs. */
#ifndef LIGI_ADOPT_H
#define LIGI_ADOPT_H

#include "store/catalog/change.h"
#include "store/upkeep/report.h"

/* Restores every model that the catalog lacks and whose own pack no model uses; a model that was
 * being saved when its process ended may be among them. A name that is in use becomes NAME~ID.
 * Each is reported and counted in *adopted. */
lig_status ligi_adopt(lig_store *store, ligi_report *report, uint64_t *adopted);

#endif
