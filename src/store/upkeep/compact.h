/* Compaction: rewrites packs that are mostly unused. */
#ifndef LIGI_COMPACT_H
#define LIGI_COMPACT_H

#include "store/handle.h"

/* Moves the used bytes of packs that are more than half unused to new packs; counts the packs that
 * were emptied and the bytes that were freed. */
lig_status ligi_compact_packs(lig_store *store, uint64_t *packs, uint64_t *bytes);

/* Rewrites all models that have bytes in this pack, which is removed with the last of them. Models
 * that cannot be read completely are unchanged, and the pack is then kept. Adds to *freed. */
lig_status ligi_compact_pack(lig_store *store, uint64_t pack, uint64_t *freed);

#endif
