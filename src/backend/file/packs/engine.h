/* Moves bytes between a file and memory: a fixed set of aligned buffers (slots) and, where the
 * kernel has it, a ring. An engine belongs to one thread at a time; idle ones wait on the volume
 * for the next pack. */
#ifndef LIGI_ENGINE_H
#define LIGI_ENGINE_H

#include <ligament/backend.h>

#define LIGI_ALIGN_BYTES UINT64_C(4096) /* what every device and file system takes */
#define LIGI_ENGINE_DEPTH 31
#define LIGI_SLOT_COUNT 15
#define LIGI_SLOT_BYTES                                                                            \
    (LIG_BLOCK_BYTES + (UINT64_C(64) << 10)) /* a block, and what alignment adds */

typedef struct ligi_io {
    int fd;       /* with O_DIRECT if the caller has one */
    int plain_fd; /* the same file without: finishes what the ring or O_DIRECT leaves undone */
    int write;
    int slot; /* -1: `data` is the caller's */
    void *data;
    uint64_t bytes, offset;
    uint64_t need; /* of a read: fewer bytes than this are an error; the rest may be past the end */
    uint64_t token; /* the caller's */
} ligi_io;

typedef struct ligi_engine ligi_engine;

/* Memory only; nothing is touched before it is used. */
lig_status ligi_engine_create(ligi_engine **engine);
/* NULL is valid. In a forked child the memory and the ring belong to the parent: only the struct
 * is freed. */
void ligi_engine_destroy(ligi_engine *engine, int forked);

/* Creates the ring if necessary; returns 0 if the kernel refuses, and I/O is then synchronous. */
int ligi_engine_ring(ligi_engine *engine);
/* Why there is no ring: an errno value; 0 if there is one or none was requested. */
int ligi_engine_refusal(const ligi_engine *engine);

/* A free slot, or -1. */
int ligi_engine_take(ligi_engine *engine);
void ligi_engine_free(ligi_engine *engine, int slot);
uint8_t *ligi_engine_slot(ligi_engine *engine, int slot);

unsigned ligi_engine_flying(const ligi_engine *engine);
/* Starts one transfer (copied); at most LIGI_ENGINE_DEPTH fly. */
lig_status ligi_engine_start(ligi_engine *engine, const ligi_io *io);
/* Waits for a transfer and fills *io with it. On failure the transfer has ended too. */
lig_status ligi_engine_finish(ligi_engine *engine, ligi_io *io);
/* Waits for all transfers, regardless of their result, and frees all slots. */
void ligi_engine_drain(ligi_engine *engine);

/* Complete transfers without a ring: they continue after EINTR and short counts. A read past the
 * end fails with LIG_E_CORRUPT. */
lig_status ligi_write_all(int fd, const void *data, uint64_t bytes, uint64_t offset);

#endif
