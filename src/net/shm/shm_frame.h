/* The header of a message in a ring, as bytes. Pure.
 *
 *   header   16 bytes: kind u16, pieces u16, head bytes u32, payload bytes u64
 *   pieces   24 bytes each: segment u32, 0 u32, offset u64, bytes u64; together the payload.
 *            Segment 0 is what follows in the ring, any other is in memory that was lent
 *   head
 *
 * Both ends are on one host: numbers are in native byte order. */
#ifndef LIGI_SHM_FRAME_H
#define LIGI_SHM_FRAME_H

#include "net/transport.h"

#define LIGI_SHM_HEADER_BYTES 16
#define LIGI_SHM_PIECE_BYTES 24
#define LIGI_SHM_FORGET 16u /* a separate kind: the segment `head_bytes` was removed */

typedef struct ligi_shm_header {
    uint16_t kind, piece_count;
    uint32_t head_bytes;
    uint64_t payload_bytes;
} ligi_shm_header;

typedef struct ligi_shm_piece {
    uint32_t segment, zero;
    uint64_t offset, bytes;
} ligi_shm_piece;

/* LIG_E_CORRUPT unless the numbers can be those of a message; the core checks its size. `header`
 * was copied out of the ring. */
lig_status ligi_shm_header_check(const ligi_shm_header *header);
/* Bytes between header and payload. */
size_t ligi_shm_front_bytes(const ligi_shm_header *header);
/* Checks the pieces that came with a header (`table`: copied out of the ring, any alignment):
 * together they are the payload. Fills pieces[i] and offset, bytes of views[i]. */
lig_status ligi_shm_pieces_check(const ligi_shm_header *header, const void *table,
                                 ligi_shm_piece *pieces, ligi_piece *views);

#endif
