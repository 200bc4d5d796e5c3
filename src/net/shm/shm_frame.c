#include "net/shm/shm_frame.h"

#include <string.h>

lig_status ligi_shm_header_check(const ligi_shm_header *header)
{
    _Static_assert(sizeof(ligi_shm_header) == LIGI_SHM_HEADER_BYTES, "no holes");
    _Static_assert(sizeof(ligi_shm_piece) == LIGI_SHM_PIECE_BYTES, "no holes");
    if (header->kind == LIGI_SHM_FORGET && header->piece_count == 0 && header->payload_bytes == 0)
        return LIG_OK;
    if (header->kind < LIGI_KIND_HELLO || header->kind > LIGI_KIND_BYE)
        return lig_fail(LIG_E_CORRUPT, "invalid shm message: kind %u", header->kind);
    if (header->head_bytes > LIGI_HEAD_BYTES_MAX)
        return lig_fail(LIG_E_CORRUPT, "invalid shm message: head of %u bytes, the limit is %d",
                        header->head_bytes, LIGI_HEAD_BYTES_MAX);
    if (header->piece_count > LIGI_PIECES_MAX ||
        (header->piece_count > 0 && header->kind != LIGI_KIND_DATA))
        return lig_fail(LIG_E_CORRUPT, "invalid shm message: kind %u with %u lent pieces",
                        header->kind, header->piece_count);
    return LIG_OK;
}

size_t ligi_shm_front_bytes(const ligi_shm_header *header)
{
    if (header->kind == LIGI_SHM_FORGET)
        return 0;
    return (size_t)header->piece_count * LIGI_SHM_PIECE_BYTES + header->head_bytes;
}

lig_status ligi_shm_pieces_check(const ligi_shm_header *header, const void *table,
                                 ligi_shm_piece *pieces, ligi_piece *views)
{
    uint64_t sum = 0;

    memcpy(pieces, table, (size_t)header->piece_count * sizeof *pieces);
    for (size_t i = 0; i < header->piece_count; i++) {
        if (pieces[i].zero != 0 || pieces[i].bytes == 0 ||
            pieces[i].bytes > header->payload_bytes - sum)
            return lig_fail(
                LIG_E_CORRUPT,
                "invalid shm message: pieces do not add up to the payload of %llu bytes",
                (unsigned long long)header->payload_bytes);
        views[i] = (ligi_piece){.offset = sum, .bytes = pieces[i].bytes};
        sum += pieces[i].bytes;
    }
    if (sum != header->payload_bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "invalid shm message: payload of %llu bytes with pieces of %llu",
                        (unsigned long long)header->payload_bytes, (unsigned long long)sum);
    return LIG_OK;
}
