/* Pieces and ranges of packs. */
#ifndef LIGI_RANGE_H
#define LIGI_RANGE_H

#include <ligament/backend.h>

#define LIGI_PACK_BYTES_MAX (UINT64_C(1) << 46)

/* LIG_E_INVALID unless the piece starts at or after the end of the pack's `bytes`, and fits. */
lig_status ligi_piece_check(const lig_piece *piece, uint64_t bytes);

/* Implements pack_read for one range of pack `id`, whose contents are the `bytes` bytes at
 * `base`. */
lig_status ligi_range_copy(const void *base, uint64_t bytes, uint64_t id, const void *secret,
                           const lig_range *range);

#endif
