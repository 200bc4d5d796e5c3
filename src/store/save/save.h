/* The implementation of a save, for the calls that start one. */
#ifndef LIGI_SAVE_H
#define LIGI_SAVE_H

#include "store/handle.h"
#include "store/save/save_source.h"

/* Checks names, tensors and options, also against the catalog, and builds the plan: everything that
 * can be refused before a byte is transferred. */
lig_status ligi_save_prepare(lig_store *store, const ligi_plan_input *input, int with_data,
                             ligi_plan *plan);
/* Refuses a name that is in use, and finds the parent. */
lig_status ligi_save_check(lig_store *store, ligi_plan *plan);
/* Writes and commits, or creates a part. A failure leaves the store unchanged. */
lig_status ligi_save_run(lig_store *store, ligi_plan *plan, const ligi_source *source);

#endif
