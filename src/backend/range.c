#include "backend/range.h"

#include "base/error.h"
#include "tensor/memory.h"

#include <inttypes.h>

lig_status ligi_piece_check(const lig_piece *piece, uint64_t bytes)
{
    if (piece->offset < bytes || piece->bytes > LIGI_PACK_BYTES_MAX ||
        piece->offset > LIGI_PACK_BYTES_MAX - piece->bytes)
        return lig_fail(LIG_E_INVALID,
                        "invalid piece of %" PRIu64 " bytes at %" PRIu64 ": the pack has %" PRIu64
                        " bytes",
                        piece->bytes, piece->offset, bytes);
    return LIG_OK;
}

lig_status ligi_range_copy(const void *base, uint64_t bytes, uint64_t id, const void *secret,
                           const lig_range *range)
{
    if (range->offset > bytes || range->bytes > bytes - range->offset)
        return lig_fail(LIG_E_CORRUPT,
                        "pack %" PRIx64 " has %" PRIu64 " bytes, but %" PRIu64 " bytes at %" PRIu64
                        " are requested",
                        id, bytes, range->bytes, range->offset);
    const uint8_t *from = (const uint8_t *)base + range->offset;
    for (uint64_t at = 0, i = 0; range->hashes != NULL && at < range->bytes;
         at += LIG_BLOCK_BYTES, i++) {
        uint64_t left = range->bytes - at;
        if (lig_hash_block(secret, from + at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES) !=
            range->hashes[i])
            return lig_fail(LIG_E_CORRUPT,
                            "pack %" PRIx64 ": checksum mismatch in the block at %" PRIu64, id,
                            range->offset + at);
    }
    return ligi_memory_from_host(range->data, from, range->bytes, range->memory, range->device);
}
