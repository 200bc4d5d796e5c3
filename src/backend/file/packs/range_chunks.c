#include "backend/file/packs/range_chunks.h"

#include "base/error.h"

#include <stdlib.h>

#define IN_PLACE_BYTES                                                                             \
    (UINT64_C(64) << 10) /* parts of at least this size get a separate transfer */

static size_t index_at(const ligi_chunks *self, size_t at)
{
    return self->order != NULL ? self->order[at] : at;
}

int ligi_chunks_part(const ligi_chunks *self, ligi_chunk_cursor *where, ligi_range_part *out)
{
    while (where->at < self->count &&
           where->done >= self->ranges[index_at(self, where->at)].bytes) {
        where->at++;
        where->done = 0;
    }
    if (where->at >= self->count)
        return 0;
    const lig_range *range = &self->ranges[index_at(self, where->at)];
    uint64_t left = range->bytes - where->done;
    out->range = range;
    out->data = (uint8_t *)range->data + where->done;
    out->offset = range->offset + where->done;
    out->bytes = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
    out->hash = range->hashes == NULL ? NULL : range->hashes + where->done / LIG_BLOCK_BYTES;
    where->done += out->bytes;
    return 1;
}

static int fits_in_place(const ligi_chunks *self, const ligi_range_part *candidate)
{
    return candidate->range->memory == LIG_MEMORY_HOST && candidate->bytes >= IN_PLACE_BYTES &&
           ((uintptr_t)candidate->data & (self->memory_align - 1)) == 0 &&
           ((candidate->offset | candidate->bytes) & (self->offset_align - 1)) == 0;
}

static int same_memory(const lig_range *a, const lig_range *b)
{
    return a->memory == b->memory && a->device == b->device;
}

int ligi_chunks_next(const ligi_chunks *self, ligi_chunk_cursor *where, ligi_chunk *out)
{
    ligi_range_part taken;

    out->first = *where;
    if (!ligi_chunks_part(self, where, &taken))
        return 0;
    out->count = 1;
    out->from = taken.offset;
    out->to = taken.offset + taken.bytes;
    out->in_place = fits_in_place(self, &taken);
    out->staged = taken.range->memory == LIG_MEMORY_HOST ? NULL : taken.range;
    out->scattered = out->staged == NULL;
    while (!out->in_place) {
        ligi_chunk_cursor ahead = *where;
        ligi_range_part next;
        if (!ligi_chunks_part(self, &ahead, &next) || fits_in_place(self, &next) ||
            !same_memory(taken.range, next.range))
            break;
        uint64_t end = next.offset + next.bytes > out->to ? next.offset + next.bytes : out->to;
        if (next.offset > out->to + LIGI_CHUNK_GAP_BYTES ||
            LIGI_ALIGN_UP(end) - LIGI_ALIGN_DOWN(out->from) > LIGI_SLOT_BYTES)
            break;
        if (next.offset < out->to)
            out->scattered = 0;
        out->to = end;
        out->count++;
        *where = ahead;
    }
    if (out->count > LIGI_CHUNK_VECTORS / 2)
        out->scattered = 0;
    return 1;
}

static int compare_offsets(const void *a, const void *b, void *context)
{
    const lig_range *ranges = context;
    uint64_t left = ranges[*(const uint32_t *)a].offset,
             right = ranges[*(const uint32_t *)b].offset;
    return (left > right) - (left < right);
}

lig_status ligi_chunks_sort(ligi_chunks *self)
{
    size_t ascending = 1;

    while (ascending < self->count &&
           self->ranges[ascending].offset >= self->ranges[ascending - 1].offset)
        ascending++;
    if (ascending >= self->count)
        return LIG_OK;
    if (self->count > UINT32_MAX)
        return lig_fail(LIG_E_LIMIT, "%zu ranges are too many for one call", self->count);
    LIG_TRY(ligi_alloc(&self->order, self->count * sizeof *self->order, "the order of ranges"));
    for (size_t i = 0; i < self->count; i++)
        self->order[i] = (uint32_t)i;
    qsort_r(self->order, self->count, sizeof *self->order, compare_offsets, (void *)self->ranges);
    return LIG_OK;
}
