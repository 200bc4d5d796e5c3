#include "mesh/device/arena_heap.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct arena {
    uint8_t *data;
    uint64_t bytes;
    ligi_free_spans free;
} arena;

struct ligi_arena_heap {
    ligi_heap_kind kind;
    int32_t device;
    pthread_mutex_t lock; /* guards all below */
    arena arenas[LIGI_HEAP_ARENAS];
    uint32_t count;
    size_t used;              /* chunks */
    ligi_arena_chunk *unused; /* descriptions of chunks, for reuse */
    int closed, keep;
};

lig_status ligi_arena_heap_create(ligi_arena_heap **out, ligi_heap_kind kind, int32_t device)
{
    ligi_arena_heap *heap;
    LIG_TRY(ligi_calloc(&heap, 1, sizeof *heap, "device memory"));
    heap->kind = kind;
    heap->device = device;
    pthread_mutex_init(&heap->lock, NULL);
    *out = heap;
    return LIG_OK;
}

static void heap_free(ligi_arena_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        ligi_free_spans_fini(&heap->arenas[i].free);
        if (heap->keep)
            continue;
        if (heap->kind == LIGI_HEAP_DEVICE)
            ligi_cuda_free(heap->device, heap->arenas[i].data);
        else
            ligi_cuda_unpin(heap->device, heap->arenas[i].data, heap->arenas[i].bytes);
    }
    while (heap->unused) {
        ligi_arena_chunk *chunk = heap->unused;
        heap->unused = chunk->next;
        free(chunk);
    }
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

void ligi_arena_heap_close(ligi_arena_heap *heap, int keep)
{
    if (heap == NULL)
        return;
    pthread_mutex_lock(&heap->lock);
    heap->closed = 1;
    heap->keep |= keep;
    int last = heap->used == 0;
    pthread_mutex_unlock(&heap->lock);
    if (last)
        heap_free(heap);
}

/* With the lock. */
static lig_status add_arena(ligi_arena_heap *heap, uint64_t bytes)
{
    uint64_t size = LIGI_HEAP_ARENA_BYTES;
    void *data = NULL;
    while (size < bytes && size <= UINT64_MAX / 4)
        size *= 2;
    if (heap->count == LIGI_HEAP_ARENAS || size < bytes)
        return lig_fail(LIG_E_NOMEM, "too many requests with tensors of CUDA device %d: %u arenas",
                        heap->device, heap->count);
    LIG_TRY(heap->kind == LIGI_HEAP_DEVICE ? ligi_cuda_alloc(heap->device, size, &data)
                                           : ligi_cuda_pin(heap->device, size, &data));
    arena *made = &heap->arenas[heap->count];
    lig_status status = ligi_free_spans_init(&made->free, size);
    if (status != LIG_OK) {
        if (heap->kind == LIGI_HEAP_DEVICE)
            ligi_cuda_free(heap->device, data);
        else
            ligi_cuda_unpin(heap->device, data, size);
        return status;
    }
    made->data = data;
    made->bytes = size;
    heap->count++;
    return LIG_OK;
}

static lig_status take_from(ligi_arena_heap *heap, uint32_t number, uint64_t bytes,
                            ligi_arena_chunk *chunk, int *found)
{
    arena *from = &heap->arenas[number];
    ligi_span span;
    LIG_TRY(ligi_free_spans_take(&from->free, bytes, &span, found));
    if (*found)
        *chunk = (ligi_arena_chunk){from->data + span.offset, bytes, number, span, heap, NULL};
    return LIG_OK;
}

/* With the lock. */
static lig_status find_room(ligi_arena_heap *heap, uint64_t bytes, ligi_arena_chunk *chunk)
{
    int found = 0;
    for (uint32_t i = 0; i < heap->count && !found; i++)
        LIG_TRY(take_from(heap, i, bytes, chunk, &found));
    if (found)
        return LIG_OK;
    LIG_TRY(add_arena(heap, bytes));
    return take_from(heap, heap->count - 1, bytes, chunk, &found);
}

lig_status ligi_arena_heap_take(ligi_arena_heap *heap, uint64_t bytes, ligi_arena_chunk **out)
{
    lig_status status = LIG_OK;
    pthread_mutex_lock(&heap->lock);
    ligi_arena_chunk *chunk = heap->unused;
    if (chunk)
        heap->unused = chunk->next;
    else
        status = ligi_calloc(&chunk, 1, sizeof *chunk, "device memory");
    if (status == LIG_OK) {
        status = find_room(heap, bytes, chunk);
        if (status == LIG_OK) {
            heap->used++;
            *out = chunk;
        } else {
            chunk->next = heap->unused;
            heap->unused = chunk;
        }
    }
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static void end_chunk(ligi_arena_chunk *chunk, int abandoned)
{
    if (chunk == NULL)
        return;
    ligi_arena_heap *heap = chunk->heap;
    pthread_mutex_lock(&heap->lock);
    if (abandoned)
        heap->keep = 1;
    else
        ligi_free_spans_give(&heap->arenas[chunk->arena].free, chunk->span);
    chunk->next = heap->unused;
    heap->unused = chunk;
    int last = --heap->used == 0 && heap->closed;
    pthread_mutex_unlock(&heap->lock);
    if (last)
        heap_free(heap);
}

void ligi_arena_chunk_drop(ligi_arena_chunk *chunk)
{
    end_chunk(chunk, 0);
}

void ligi_arena_chunk_abandon(ligi_arena_chunk *chunk)
{
    end_chunk(chunk, 1);
}

int ligi_arena_heap_find(ligi_arena_heap *heap, const void *data, uint64_t bytes, uint32_t *number,
                         uint64_t *offset)
{
    int found = 0;
    const uint8_t *first = data;
    pthread_mutex_lock(&heap->lock);
    for (uint32_t i = 0; i < heap->count && !found; i++) {
        const arena *in = &heap->arenas[i];
        if (first < in->data || first >= in->data + in->bytes ||
            bytes > in->bytes - (uint64_t)(first - in->data))
            continue;
        *number = i;
        *offset = (uint64_t)(first - in->data);
        found = 1;
    }
    pthread_mutex_unlock(&heap->lock);
    return found;
}

uint32_t ligi_arena_heap_count(ligi_arena_heap *heap)
{
    pthread_mutex_lock(&heap->lock);
    uint32_t count = heap->count;
    pthread_mutex_unlock(&heap->lock);
    return count;
}

lig_status ligi_arena_heap_export(ligi_arena_heap *heap, uint32_t number, ligi_cuda_handle *handle,
                                  void **data, uint64_t *bytes)
{
    pthread_mutex_lock(&heap->lock);
    const arena *of = &heap->arenas[number];
    *data = of->data;
    *bytes = of->bytes;
    pthread_mutex_unlock(&heap->lock);
    return ligi_cuda_export(heap->device, *data, handle);
}
