/* Compaction: packs that are mostly dead are written again. */
#ifndef LIGI_COMPACT_H
#define LIGI_COMPACT_H

#include "store/handle.h"

/* Writes what lives in packs that are more than half dead into new ones; counts the packs that were
 * emptied and the bytes that were freed. */
lig_status ligi_compact_packs(lig_store *store, uint64_t *packs, uint64_t *bytes);

#endif
