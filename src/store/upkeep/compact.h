/* Compaction: packs that are mostly dead are written again. */
#ifndef LIGI_COMPACT_H
#define LIGI_COMPACT_H

#include "store/handle.h"

/* Writes what lives in packs that are more than half dead into new ones; counts the packs that were
 * emptied and the bytes that were freed. */
lig_status ligi_compact_packs(lig_store *store, uint64_t *packs, uint64_t *bytes);

/* Writes all models again that have bytes in this pack, which goes with the last of them. Models
 * that cannot be read whole stay as they are, and the pack with them. *freed grows. */
lig_status ligi_compact_pack(lig_store *store, uint64_t pack, uint64_t *freed);

#endif
