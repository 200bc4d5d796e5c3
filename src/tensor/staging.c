#include "tensor/staging.h"

#include "tensor/cuda/cuda_device.h"
#include "tensor/memory.h"

#include <string.h>

/* --- out --- */

void ligi_drain_begin(ligi_drain *drain, const void *data, uint64_t bytes, uint16_t memory,
                      int32_t device)
{
    *drain = (ligi_drain){.data = data, .bytes = bytes, .memory = memory, .device = device};
}

static lig_status queue_next(ligi_drain *drain, int wait, int *taken)
{
    ligi_cuda_slot slot;
    LIG_TRY(ligi_cuda_slot_take(drain->device, wait, &slot));
    *taken = slot.data != NULL;
    if (!*taken)
        return LIG_OK;
    uint64_t left = drain->bytes - drain->queued;
    uint64_t size = left < LIGI_STAGING_BYTES ? left : LIGI_STAGING_BYTES;
    lig_status status = ligi_cuda_slot_get(&slot, drain->data + drain->queued, size);
    if (status != LIG_OK) {
        ligi_cuda_slot_drop(&slot);
        return status;
    }
    drain->slots[drain->count] = slot;
    drain->sizes[drain->count++] = size;
    drain->queued += size;
    return LIG_OK;
}

/* Keeps copies in progress. Waits only for the first slot: see cuda_ring.h. */
static lig_status read_ahead(ligi_drain *drain)
{
    int taken = 1;
    while (taken && drain->count < LIGI_DRAIN_AHEAD && drain->queued < drain->bytes)
        LIG_TRY(queue_next(drain, drain->count == 0, &taken));
    return LIG_OK;
}

static void drop_first(ligi_drain *drain)
{
    ligi_cuda_slot_drop(&drain->slots[0]);
    drain->count--;
    memmove(drain->slots, drain->slots + 1, drain->count * sizeof *drain->slots);
    memmove(drain->sizes, drain->sizes + 1, drain->count * sizeof *drain->sizes);
    drain->shown = 0;
}

static lig_status next_of_device(ligi_drain *drain, const uint8_t **data, uint64_t *bytes)
{
    if (drain->shown)
        drop_first(drain);
    LIG_TRY(read_ahead(drain));
    *bytes = 0;
    if (drain->count == 0)
        return LIG_OK;
    LIG_TRY(ligi_cuda_slot_wait(&drain->slots[0]));
    *data = drain->slots[0].data;
    *bytes = drain->sizes[0];
    drain->shown = 1;
    return LIG_OK;
}

lig_status ligi_drain_next(ligi_drain *drain, uint64_t most, const uint8_t **data, uint64_t *bytes)
{
    if (drain->memory != LIG_MEMORY_HOST)
        return next_of_device(drain, data, bytes);
    uint64_t left = drain->bytes - drain->queued;
    *data = drain->data + drain->queued;
    *bytes = left < most ? left : most;
    drain->queued += *bytes;
    return LIG_OK;
}

void ligi_drain_end(ligi_drain *drain)
{
    while (drain->count > 0)
        drop_first(drain);
}

/* --- in --- */

lig_status ligi_staging_take(ligi_staging_buffer *buffer, uint16_t memory, int32_t device, int wait)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    return ligi_cuda_slot_take(device, wait, buffer);
}

lig_status ligi_staging_put(ligi_staging_buffer *buffer, void *to, const void *from, uint64_t bytes)
{
    return ligi_cuda_slot_put(buffer, to, from, bytes);
}

lig_status ligi_staging_send(ligi_staging_buffer *buffer)
{
    return ligi_cuda_slot_send(buffer);
}

void ligi_staging_drop(ligi_staging_buffer *buffer)
{
    ligi_cuda_slot_drop(buffer);
}

static lig_status push_piece(uint8_t *to, const uint8_t *from, uint64_t bytes, int32_t device)
{
    ligi_cuda_slot slot;
    LIG_TRY(ligi_cuda_slot_take(device, 1, &slot));
    memcpy(slot.data, from, bytes);
    lig_status status = ligi_cuda_slot_put(&slot, to, slot.data, bytes);
    if (status == LIG_OK)
        return ligi_cuda_slot_send(&slot);
    ligi_cuda_slot_drop(&slot);
    return status;
}

lig_status ligi_staging_push(void *to, const void *from, uint64_t bytes, uint16_t memory,
                             int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    if (memory == LIG_MEMORY_HOST) {
        memcpy(to, from, bytes);
        return LIG_OK;
    }
    for (uint64_t at = 0; at < bytes; at += LIGI_STAGING_BYTES) {
        uint64_t left = bytes - at;
        LIG_TRY(push_piece((uint8_t *)to + at, (const uint8_t *)from + at,
                           left < LIGI_STAGING_BYTES ? left : LIGI_STAGING_BYTES, device));
    }
    return LIG_OK;
}

lig_status ligi_staging_finish(uint16_t memory, int32_t device)
{
    return memory == LIG_MEMORY_CUDA ? ligi_cuda_finish(device) : LIG_OK;
}
