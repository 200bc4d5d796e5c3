#include "store/save/dedup.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/catalog/fingerprint_index.h"
#include "store/format/block_hashes.h"
#include "store/save/dedup_sources.h"
#include "store/save/save_source.h"
#include "tensor/memory.h"

#include <stdlib.h>

#define BUFFER_BYTES (UINT64_C(4) << 20)
#define JOB_BYTES (UINT64_C(2) << 20) /* what a thread takes at a time */

typedef struct dedup {
    lig_store *store;
    ligi_plan *plan;
    const ligi_source *source;
    size_t *wanted; /* tensors that may be stored already */
    size_t count;
    ligi_hash_job *jobs;
    size_t job_count, job_capacity;
    ligi_hash_ask *asks; /* instead of jobs, if the source has the hashes */
    size_t ask_count, ask_capacity;
    ligi_memory_block *blocks; /* in memory of `device`, hashed there */
    size_t block_count, block_capacity;
    int32_t device;
    uint8_t *buffer;
} dedup;

/* Bytes of a tensor that cannot be hashed in place: hashed now, on this thread. */
static lig_status hash_parts(dedup *self, size_t index, uint64_t start, uint64_t end)
{
    uint64_t *hashes = self->plan->hashes + self->plan->slots[index].first_hash;
    if (self->buffer == NULL)
        LIG_TRY(ligi_alloc(&self->buffer, BUFFER_BYTES, "a buffer"));
    for (uint64_t at = start; at < end; at += BUFFER_BYTES) {
        uint64_t bytes = end - at < BUFFER_BYTES ? end - at : BUFFER_BYTES;
        LIG_TRY(ligi_source_fill(self->source, self->plan, index,
                                 &(ligi_stretch){at, bytes, self->buffer}));
        ligi_hash_job job = {self->buffer, bytes, hashes + at / LIG_BLOCK_BYTES};
        ligi_hash_jobs(self->store->secret, &job, 1);
    }
    return LIG_OK;
}

static lig_status ask_range(dedup *self, size_t index, uint64_t start, uint64_t end)
{
    uint64_t first = start / LIG_BLOCK_BYTES;
    LIG_TRY(ligi_grow(&self->asks, &self->ask_capacity, self->ask_count + 1, sizeof *self->asks,
                      "checksums"));
    self->asks[self->ask_count++] =
        (ligi_hash_ask){index, first, ligi_manifest_block_count(end) - first,
                        self->plan->hashes + self->plan->slots[index].first_hash + first};
    return LIG_OK;
}

static lig_status run_blocks(dedup *self)
{
    size_t count = self->block_count;
    self->block_count = 0;
    if (count == 0)
        return LIG_OK;
    return ligi_memory_hash(self->store->secret, self->blocks, count, LIG_MEMORY_CUDA,
                            self->device);
}

/* Blocks in device memory: gathered, and hashed by one call for each device. */
static lig_status hash_device(dedup *self, size_t index, uint64_t start, uint64_t end)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    uint64_t *hashes = self->plan->hashes + self->plan->slots[index].first_hash;
    uint64_t least = ligi_memory_hash_least(tensor->memory, tensor->device);
    if (least == UINT64_MAX)
        return hash_parts(self, index, start, end);
    if (tensor->device != self->device)
        LIG_TRY(run_blocks(self));
    self->device = tensor->device;
    for (uint64_t at = start; at < end; at += LIG_BLOCK_BYTES) {
        uint64_t bytes = end - at < LIG_BLOCK_BYTES ? end - at : LIG_BLOCK_BYTES;
        if (bytes < least) {
            LIG_TRY(hash_parts(self, index, at, at + bytes));
            continue;
        }
        LIG_TRY(ligi_grow(&self->blocks, &self->block_capacity, self->block_count + 1,
                          sizeof *self->blocks, "checksums"));
        self->blocks[self->block_count++] = (ligi_memory_block){
            (const uint8_t *)tensor->data + at, bytes, hashes + at / LIG_BLOCK_BYTES};
    }
    return LIG_OK;
}

static lig_status hash_range(dedup *self, size_t index, uint64_t start, uint64_t end)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    uint64_t *hashes = self->plan->hashes + self->plan->slots[index].first_hash;
    if (self->source->hash)
        return ask_range(self, index, start, end);
    if (self->source->fill == NULL && tensor->memory != LIG_MEMORY_HOST)
        return hash_device(self, index, start, end);
    if (!ligi_source_flat(self->source, tensor))
        return hash_parts(self, index, start, end);
    for (uint64_t at = start; at < end; at += JOB_BYTES) {
        LIG_TRY(ligi_grow(&self->jobs, &self->job_capacity, self->job_count + 1, sizeof *self->jobs,
                          "checksums"));
        uint64_t bytes = end - at < JOB_BYTES ? end - at : JOB_BYTES;
        self->jobs[self->job_count++] = (ligi_hash_job){(const uint8_t *)tensor->data + at, bytes,
                                                        hashes + at / LIG_BLOCK_BYTES};
    }
    return LIG_OK;
}

static lig_status run_jobs(dedup *self)
{
    size_t asks = self->ask_count;
    ligi_hash_jobs(self->store->secret, self->jobs, self->job_count);
    self->job_count = self->ask_count = 0;
    if (asks)
        LIG_TRY(self->source->hash(self->source->context, self->asks, asks));
    return run_blocks(self);
}

/* Most small tensors without a parent are skipped here, at the cost of a comparison. */
static lig_status choose_any(dedup *self, size_t first, size_t end)
{
    const ligi_plan *plan = self->plan;
    for (size_t i = first; i < end && plan->shares; i++) {
        if (plan->slots[i].tied != SIZE_MAX || plan->tensors[i].bytes == 0 ||
            !ligi_shares_may(plan->shares, plan->tensors[i].bytes))
            continue;
        if (self->wanted == NULL)
            LIG_TRY(ligi_calloc(&self->wanted, end - i, sizeof *self->wanted, "a save"));
        self->wanted[self->count++] = i;
    }
    return LIG_OK;
}

/* The catalog is read between hashing steps, never during them: a view that is held for long
 * prevents the catalog from growing. */
static lig_status choose_sizes(dedup *self)
{
    ligi_catalog_view view;
    size_t kept = 0;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    for (size_t i = 0; i < self->count; i++)
        if (ligi_shares_size(self->plan->shares, &view, self->plan->tensors[self->wanted[i]].bytes))
            self->wanted[kept++] = self->wanted[i];
    self->count = kept;
    ligi_catalog_view_end(&view);
    return LIG_OK;
}

static lig_status hash_firsts(dedup *self)
{
    for (size_t i = 0; i < self->count; i++) {
        uint64_t bytes = self->plan->tensors[self->wanted[i]].bytes;
        LIG_TRY(hash_range(self, self->wanted[i], 0,
                           bytes < LIG_BLOCK_BYTES ? bytes : LIG_BLOCK_BYTES));
    }
    return run_jobs(self);
}

static lig_status choose_begins(dedup *self)
{
    const ligi_plan *plan = self->plan;
    size_t kept = 0;
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    for (size_t i = 0; i < self->count; i++) {
        size_t index = self->wanted[i];
        if (ligi_shares_begin(plan->shares, &view, plan->hashes[plan->slots[index].first_hash],
                              plan->tensors[index].bytes))
            self->wanted[kept++] = index;
    }
    self->count = kept;
    ligi_catalog_view_end(&view);
    return LIG_OK;
}

static lig_status hash_rest(dedup *self)
{
    for (size_t i = 0; i < self->count; i++) {
        uint64_t bytes = self->plan->tensors[self->wanted[i]].bytes;
        if (bytes > LIG_BLOCK_BYTES)
            LIG_TRY(hash_range(self, self->wanted[i], LIG_BLOCK_BYTES, bytes));
    }
    return run_jobs(self);
}

static lig_status place_found(dedup *self)
{
    ligi_plan *plan = self->plan;
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < self->count && status == LIG_OK; i++) {
        ligi_slot *slot = &plan->slots[self->wanted[i]];
        ligi_fingerprint_entry found;
        status = ligi_shares_find(plan->shares, &view, plan->hashes + slot->first_hash,
                                  plan->tensors[self->wanted[i]].bytes, &found);
        if (status != LIG_OK || found.owner == 0)
            continue;
        slot->owner = found.owner;
        slot->pack = found.pack;
        slot->offset = found.pack ? found.offset : 0;
    }
    ligi_catalog_view_end(&view);
    return status;
}

lig_status ligi_dedup(lig_store *store, ligi_plan *plan, const ligi_source *source, size_t first,
                      size_t end)
{
    dedup self = {.store = store, .plan = plan, .source = source};
    int64_t begin = ligi_now_ns();
    LIG_TRY(choose_any(&self, first, end));
    if (self.count == 0)
        return LIG_OK;
    lig_status status = choose_sizes(&self);
    if (status == LIG_OK)
        status = hash_firsts(&self);
    if (status == LIG_OK && self.count)
        status = choose_begins(&self);
    if (status == LIG_OK)
        status = hash_rest(&self);
    if (status == LIG_OK && self.count)
        status = place_found(&self);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_LOOKUP, begin);
    free(self.wanted);
    free(self.jobs);
    free(self.asks);
    free(self.blocks);
    free(self.buffer);
    return status;
}
