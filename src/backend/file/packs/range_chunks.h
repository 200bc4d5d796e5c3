/* Ranges of a pack, cut into what one transfer reads. Pure. */
#ifndef LIGI_RANGE_CHUNKS_H
#define LIGI_RANGE_CHUNKS_H

#include "backend/file/packs/engine.h"

#define LIGI_CHUNK_GAP_BYTES                                                                       \
    (UINT64_C(32) << 10) /* what is read for nothing rather than by another transfer */
#define LIGI_CHUNK_VECTORS 512

#define LIGI_ALIGN_DOWN(offset) ((offset) & ~(LIGI_ALIGN_BYTES - 1))
#define LIGI_ALIGN_UP(offset) LIGI_ALIGN_DOWN((offset) + LIGI_ALIGN_BYTES - 1)

/* The ranges of a read, in any order. */
typedef struct ligi_chunks {
    const lig_range *ranges;
    size_t count;
    uint32_t *order;                     /* by offset; NULL: they are in order already */
    uint64_t memory_align, offset_align; /* of transfers straight into the caller's memory */
} ligi_chunks;

/* The position of a walk over the ranges: in order of their offsets, each divided into its own
 * blocks. Starts as {0}. */
typedef struct ligi_chunk_cursor {
    size_t at;     /* in the order */
    uint64_t done; /* bytes of that range */
} ligi_chunk_cursor;

typedef struct ligi_range_part { /* one block of one range, or a part of it */
    const lig_range *range;
    uint8_t *data;
    uint64_t offset, bytes;
    const uint64_t *hash; /* NULL: not checked */
} ligi_range_part;

typedef struct ligi_chunk { /* parts that are read by one transfer, all into one kind of memory */
    ligi_chunk_cursor first;
    size_t count;
    uint64_t from, to;       /* in the file; what the parts need, not aligned */
    const lig_range *staged; /* one of the ranges, if they are in device memory */
    int in_place;            /* one part, straight into its memory */
    int scattered;           /* host memory and no overlaps: readv can fill it */
} ligi_chunk;

/* Sets `order` unless the ranges are in order; the caller frees it. */
lig_status ligi_chunks_sort(ligi_chunks *chunks);
/* Fills *out with the part at the cursor and moves on; 0 at the end. */
int ligi_chunks_part(const ligi_chunks *chunks, ligi_chunk_cursor *where, ligi_range_part *out);
/* Takes as many parts as are close together and fit into LIGI_SLOT_BYTES; 0 at the end. */
int ligi_chunks_next(const ligi_chunks *chunks, ligi_chunk_cursor *where, ligi_chunk *out);

#endif
