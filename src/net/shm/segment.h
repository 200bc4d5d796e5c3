/* Memory that can be lent to peers on this host: blocks in sealed memfds (`segments`).
 *
 * The contract of mesh.empty and LIGI_SEND_LEND:
 *   - The sender must leave a lent piece unchanged until a message of its module's protocol says
 *     that the peer has done with it (for the mesh: the reply). Nothing stops it from writing
 *     earlier; the peer would then see a mixture, and nothing worse.
 *   - The receiver's pointer refers to its own mapping of the segment, and stays readable while the
 *     mapping is kept (ligi_mapping_keep), whatever becomes of sender, link and endpoint. Its
 *     contents are the sender's until the receiver has answered. The mapping is writable, so that
 *     user code that works in place does not die of it: what it writes, the sender sees.
 *   - A freed block's pages go back to the system at once, also while a peer has them mapped (it
 *     then reads zeros or what the next block holds: a view past its end, never a fault).
 *   - The sender dies: what the receiver has kept stays as it was. The receiver dies: its link is
 *     lost, and the memory is the sender's again.
 *   - A segment without blocks is unmapped; peers are notified with the next message and unmap
 *     it when they keep no view of it.
 *   - A forked child sees the same memory (it is ordinary shared memory to it); freeing there only
 *     unmaps. */
#ifndef LIGI_SEGMENT_H
#define LIGI_SEGMENT_H

#include <ligament/base.h>

#define LIGI_SEGMENT_ALIGN (UINT64_C(16) << 20) /* of a segment's address */
#define LIGI_BLOCK_BYTES 4096                   /* blocks start and end at multiples */

typedef struct ligi_segments ligi_segments;

typedef struct ligi_segment_place {
    uint32_t segment;       /* its number: never 0, never used twice by one endpoint */
    int fd;                 /* borrowed while the block lives */
    uint64_t segment_bytes; /* all of it */
    uint64_t offset;        /* of the piece */
} ligi_segment_place;

/* At most `limit_bytes` in blocks at a time; 0: half of this machine's memory. **Shared**, as are
 * the calls below. */
lig_status ligi_segments_create(uint64_t limit_bytes, ligi_segments **segments);
/* The owner no longer needs it; it is freed with the last block. NULL is valid. */
void ligi_segments_destroy(ligi_segments *segments);

/* Zeroed, aligned to LIGI_BLOCK_BYTES; 0 bytes are valid. LIG_E_LIMIT above the limit. */
lig_status ligi_segments_alloc(ligi_segments *segments, uint64_t bytes, void **memory);
/* Reserves addresses for a large region of which only few pages are touched: a separate segment
 * that peers map read-only. It does not count against the limit: only touched pages use memory.
 * After it is freed, pages remain for peers that have mapped them. */
lig_status ligi_segments_reserve(ligi_segments *segments, uint64_t bytes, void **memory);
/* Frees memory of any ligi_segments, also after its destroy; the memory records its owner. */
void ligi_segments_free(void *memory);

/* 1 if the whole piece is in one segment; fills *place. */
int ligi_segments_find(ligi_segments *segments, const void *data, uint64_t bytes,
                       ligi_segment_place *place);
/* 1 if the segment with that number has blocks. */
int ligi_segments_alive(ligi_segments *segments, uint32_t segment);
/* Changes whenever a segment is freed. */
uint64_t ligi_segments_epoch(ligi_segments *segments);

#endif
