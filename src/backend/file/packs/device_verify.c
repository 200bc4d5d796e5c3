#include "backend/file/packs/device_verify.h"

#include "base/error.h"
#include "tensor/memory.h"

#include <stdlib.h>

typedef struct verification {
    const lig_range *ranges;
    ligi_memory_block *blocks; /* all of one device */
    size_t *of;                /* the range of each */
    uint64_t *hashes;
    size_t count, capacity, range_capacity, hash_capacity;
} verification;

int ligi_device_verify_later(ligi_device_verify *self, const lig_range *range, uint64_t bytes)
{
    if (range->memory == LIG_MEMORY_HOST || range->hashes == NULL)
        return 0;
    if (!self->known || self->device != range->device)
        *self = (ligi_device_verify){1, range->device,
                                     ligi_memory_hash_least(range->memory, range->device)};
    return bytes >= self->least;
}

static uint64_t block_bytes(const lig_range *range, uint64_t at)
{
    return range->bytes - at < LIG_BLOCK_BYTES ? range->bytes - at : LIG_BLOCK_BYTES;
}

static lig_status add_range(verification *self, ligi_device_verify *which, size_t index)
{
    const lig_range *range = &self->ranges[index];
    size_t need = self->count + (size_t)(range->bytes / LIG_BLOCK_BYTES) + 1;
    LIG_TRY(ligi_grow(&self->blocks, &self->capacity, need, sizeof *self->blocks, "checksums"));
    LIG_TRY(ligi_grow(&self->of, &self->range_capacity, need, sizeof *self->of, "checksums"));
    for (uint64_t at = 0; at < range->bytes; at += LIG_BLOCK_BYTES) {
        uint64_t bytes = block_bytes(range, at);
        if (!ligi_device_verify_later(which, range, bytes))
            continue;
        self->of[self->count] = index;
        self->blocks[self->count++] =
            (ligi_memory_block){(const uint8_t *)range->data + at, bytes, NULL};
    }
    return LIG_OK;
}

static lig_status hash_all(verification *self, const void *secret, int32_t device)
{
    LIG_TRY(ligi_grow(&self->hashes, &self->hash_capacity, self->count, sizeof *self->hashes,
                      "checksums"));
    for (size_t i = 0; i < self->count; i++)
        self->blocks[i].hash = &self->hashes[i];
    return ligi_memory_hash(secret, self->blocks, self->count, LIG_MEMORY_CUDA, device);
}

/* Compares and forgets the blocks. */
static lig_status compare(verification *self, size_t *bad, uint64_t *offset)
{
    size_t count = self->count;
    self->count = 0;
    for (size_t i = 0; i < count; i++) {
        const lig_range *range = &self->ranges[self->of[i]];
        uint64_t at = (uint64_t)((const uint8_t *)self->blocks[i].data - (uint8_t *)range->data);
        if (self->hashes[i] == range->hashes[at / LIG_BLOCK_BYTES])
            continue;
        *bad = self->of[i];
        *offset = range->offset + at;
        return LIG_E_CORRUPT;
    }
    return LIG_OK;
}

lig_status ligi_device_verify_run(const void *secret, const lig_range *ranges, size_t count,
                                  size_t *bad, uint64_t *offset)
{
    verification self = {.ranges = ranges};
    ligi_device_verify which = {0};
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        if (ranges[i].memory == LIG_MEMORY_HOST || ranges[i].hashes == NULL)
            continue;
        status = add_range(&self, &which, i);
        int last = i + 1 == count || ranges[i + 1].memory != ranges[i].memory ||
                   ranges[i + 1].device != ranges[i].device;
        if (status == LIG_OK && last && self.count)
            status = hash_all(&self, secret, ranges[i].device);
        if (status == LIG_OK && last)
            status = compare(&self, bad, offset);
    }
    free(self.blocks);
    free(self.of);
    free(self.hashes);
    return status;
}
