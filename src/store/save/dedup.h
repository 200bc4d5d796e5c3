/* Determines which tensors of a save are already stored. */
#ifndef LIGI_DEDUP_H
#define LIGI_DEDUP_H

#include "store/save/save.h"

/* Tensors [first, end) may be read. Those that need not be written get their location and
 * hashes. */
lig_status ligi_dedup(lig_store *store, ligi_plan *plan, const ligi_source *source, size_t first,
                      size_t end);

#endif
