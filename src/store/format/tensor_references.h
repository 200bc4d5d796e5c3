/* Reference counts: how many live compositions refer to a tensor, and how much of a pack is in use.
 * Pure.
 *
 * The catalog counts by pack (models, and references to tensors); the counts of single tensors
 * are not stored, because each save and each retire would have to write one record for every
 * tensor it shares. They are computed here from the compositions when needed. */
#ifndef LIGI_TENSOR_REFERENCES_H
#define LIGI_TENSOR_REFERENCES_H

#include "store/format/manifest.h"

typedef struct ligi_naming {
    uint64_t pack, offset, bytes;
    uint64_t count;                    /* compositions that contain it */
    uint64_t moved_pack, moved_offset; /* for the caller that moves it; initially 0 */
} ligi_naming;

typedef struct ligi_ownership { /* zeroed is empty */
    ligi_naming *namings;
    size_t count, capacity;
} ligi_ownership;

/* Adds one model's composition. */
lig_status ligi_ownership_add(ligi_ownership *ownership, const ligi_manifest *manifest);
/* After the last add: one entry per reference, in order. */
void ligi_ownership_sum(ligi_ownership *ownership);
/* NULL if there are no references. */
ligi_naming *ligi_ownership_find(const ligi_ownership *ownership, uint64_t pack, uint64_t offset);
/* The bytes of a pack that are referred to, each counted once. */
uint64_t ligi_ownership_live(const ligi_ownership *ownership, uint64_t pack);
void ligi_ownership_fini(ligi_ownership *ownership);

#endif
