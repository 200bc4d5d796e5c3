/* Removing models immediately or later, and restoring them. */
#ifndef LIGI_RETIRE_H
#define LIGI_RETIRE_H

#include "store/handle.h"

/* Retires the model of that name if it still has this id; does nothing otherwise. */
lig_status ligi_retire_id(lig_store *store, const char *model, uint64_t id);
/* Removes the retired models whose time has expired. Adds the bytes to *freed, which may be
 * NULL. */
lig_status ligi_retired_purge(lig_store *store, uint64_t *freed);

#endif
