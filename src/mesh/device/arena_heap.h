/* Memory of a device, or pinned host memory, in arenas that are allocated once and kept: an arena
 * of a device can be opened by other processes. Shared: any thread, no lock needed; it is freed
 * when it is closed and no chunk is in use. */
#ifndef LIGI_ARENA_HEAP_H
#define LIGI_ARENA_HEAP_H

#include "mesh/device/free_spans.h"
#include "tensor/cuda/cuda_share.h"

#define LIGI_HEAP_ARENAS 64u
#define LIGI_HEAP_ARENA_BYTES (UINT64_C(64) << 20) /* the least */

typedef enum ligi_heap_kind { LIGI_HEAP_DEVICE, LIGI_HEAP_PINNED } ligi_heap_kind;

typedef struct ligi_arena_heap ligi_arena_heap;

typedef struct ligi_arena_chunk {
    uint8_t *data;
    uint64_t bytes;
    uint32_t arena;
    ligi_span span; /* in the arena */
    ligi_arena_heap *heap;
    struct ligi_arena_chunk *next;
} ligi_arena_chunk;

lig_status ligi_arena_heap_create(ligi_arena_heap **heap, ligi_heap_kind kind, int32_t device);
/* With `keep` the arenas stay allocated until the process ends: something may still write to
 * them. */
void ligi_arena_heap_close(ligi_arena_heap *heap, int keep);

/* LIG_E_NOMEM if the device has no room for another arena, or there are too many. */
lig_status ligi_arena_heap_take(ligi_arena_heap *heap, uint64_t bytes, ligi_arena_chunk **chunk);
/* Returns it. NULL is valid. */
void ligi_arena_chunk_drop(ligi_arena_chunk *chunk);
/* Abandons a chunk that may still be in use: it is never reused, and the arenas stay allocated when
 * the heap is closed. NULL is valid. */
void ligi_arena_chunk_abandon(ligi_arena_chunk *chunk);

/* The position of memory in the heap; 0 if it is not in the heap. */
int ligi_arena_heap_find(ligi_arena_heap *heap, const void *data, uint64_t bytes, uint32_t *arena,
                         uint64_t *offset);

/* Arenas are numbered from 0 and are never freed while the heap is open. */
uint32_t ligi_arena_heap_count(ligi_arena_heap *heap);
/* Its address and size, and the handle by which another process opens it. */
lig_status ligi_arena_heap_export(ligi_arena_heap *heap, uint32_t arena, ligi_cuda_handle *handle,
                                  void **data, uint64_t *bytes);

#endif
