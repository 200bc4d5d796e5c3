/* Pieces and ranges of packs. */
#ifndef LIGI_RANGE_H
#define LIGI_RANGE_H

#include <ligament/backend.h>

#define LIGI_PACK_BYTES_MAX (UINT64_C(1) << 46)

/* LIG_E_INVALID unless the piece follows the `bytes` that the pack has, and fits. */
lig_status ligi_piece_check(const lig_piece *piece, uint64_t bytes);

/* Does what pack_read does for one range of pack `id`, whose bytes are the `bytes` at `base`. */
lig_status ligi_range_copy(const void *base, uint64_t bytes, uint64_t id, const void *secret,
                           const lig_range *range);

#endif
