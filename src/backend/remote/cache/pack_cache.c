#include "backend/remote/cache/pack_cache.h"

#include "backend/remote/cache/cache_files.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK LIG_BLOCK_BYTES
/* Missing blocks are read together up to this many bytes: memory of one read. */
#define FETCH_BYTES (UINT64_C(64) << 20)

typedef struct cached_read {
    ligi_remote_cache *cache;
    const ligi_cached_pack *pack;
    ligi_cache_file file;
    uint8_t *block; /* one, for parts of cached blocks */
} cached_read;

static uint64_t block_bytes(const cached_read *self, uint64_t block)
{
    uint64_t left = self->file.bytes - block * BLOCK;

    return left < BLOCK ? left : BLOCK;
}

/* Copies from the cache; 0 if a block is missing or damaged. */
static int read_cached(cached_read *self, const ligi_object_range *range)
{
    uint8_t *to = range->data;
    uint64_t at = range->offset, end = range->offset + range->bytes;

    while (at < end) {
        uint64_t block = at / BLOCK, inside = at % BLOCK, bytes = block_bytes(self, block);
        uint64_t step = bytes - inside < end - at ? bytes - inside : end - at;
        uint8_t *whole = step == bytes ? to : self->block;
        if (!ligi_cache_block_get(&self->file, block, whole, bytes))
            return 0;
        if (whole != to)
            memcpy(to, whole + inside, step);
        to += step;
        at += step;
    }
    return 1;
}

/* --- what is missing --- */

typedef struct fetch {
    cached_read *read;
    const ligi_object_range *ranges; /* the caller's */
    const size_t *missing;           /* their indices */
    ligi_object_range *wanted;       /* whole blocks around them, into `memory` */
    size_t count;
    ligi_object_arrived arrived;
    void *context;
} fetch;

static lig_status block_arrived(void *context, size_t index)
{
    fetch *self = context;
    const ligi_object_range *wanted = &self->wanted[index],
                            *range = &self->ranges[self->missing[index]];
    const uint8_t *from = wanted->data;

    for (uint64_t at = 0; at < wanted->bytes; at += BLOCK) {
        uint64_t left = wanted->bytes - at;
        ligi_cache_block_put(&self->read->file, (wanted->offset + at) / BLOCK, from + at,
                             left < BLOCK ? left : BLOCK);
    }
    memcpy(range->data, from + (range->offset - wanted->offset), range->bytes);
    return self->arrived != NULL ? self->arrived(self->context, self->missing[index]) : LIG_OK;
}

static ligi_object_range around(const cached_read *self, const ligi_object_range *range)
{
    uint64_t first = range->offset / BLOCK * BLOCK,
             end = (range->offset + range->bytes + BLOCK - 1) / BLOCK * BLOCK;

    return (ligi_object_range){.offset = first,
                               .bytes = (end < self->file.bytes ? end : self->file.bytes) - first};
}

/* The first ranges of self->missing, as many as FETCH_BYTES allows; *done is their number. */
static lig_status fetch_some(fetch *self, size_t *done)
{
    const ligi_cached_pack *pack = self->read->pack;
    ligi_object object = {LIGI_OBJECT_PACK, pack->id};
    uint64_t bytes = 0;
    size_t count = 0;
    uint8_t *memory;

    for (; count < self->count; count++) {
        self->wanted[count] = around(self->read, &self->ranges[self->missing[count]]);
        if (count > 0 && bytes + self->wanted[count].bytes > FETCH_BYTES)
            break;
        bytes += self->wanted[count].bytes;
    }
    LIG_TRY(ligi_alloc(&memory, bytes + 1, "blocks of a pack"));
    uint8_t *to = memory;
    for (size_t i = 0; i < count; i++) {
        self->wanted[i].data = to;
        to += self->wanted[i].bytes;
    }
    lig_status status =
        pack->ops->object_read(pack->engine, object, self->wanted, count, block_arrived, self);
    free(memory);
    *done = count;
    return status;
}

static lig_status fetch_missing(fetch *self)
{
    while (self->count > 0) {
        size_t done;
        LIG_TRY(fetch_some(self, &done));
        self->missing += done;
        self->count -= done;
    }
    return LIG_OK;
}

static lig_status read_ranges(cached_read *self, const ligi_object_range *ranges, size_t count,
                              ligi_object_arrived arrived, void *context)
{
    fetch rest = {.read = self, .ranges = ranges, .arrived = arrived, .context = context};
    size_t *missing;

    LIG_TRY(ligi_calloc(&missing, count + 1, sizeof *missing, "a read of a pack"));
    lig_status status =
        ligi_calloc(&rest.wanted, count + 1, sizeof *rest.wanted, "a read of a pack");
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        if (ranges[i].offset + ranges[i].bytes > self->file.bytes)
            status = lig_fail(LIG_E_CORRUPT, "the pack is shorter than the range");
        else if (!read_cached(self, &ranges[i]))
            missing[rest.count++] = i;
        else if (arrived != NULL)
            status = arrived(context, i);
    }
    rest.missing = missing;
    if (status == LIG_OK)
        status = fetch_missing(&rest);
    free(rest.wanted);
    free(missing);
    return status;
}

lig_status ligi_remote_cache_read(ligi_remote_cache *cache, const ligi_cached_pack *pack,
                                  const ligi_object_range *ranges, size_t count,
                                  ligi_object_arrived arrived, void *context)
{
    cached_read self = {.cache = cache, .pack = pack};
    ligi_object object = {LIGI_OBJECT_PACK, pack->id};
    uint64_t bytes = 0;

    int known = ligi_cache_file_open(cache, pack->id, 0, &self.file);
    if (!known) {
        LIG_TRY(pack->ops->object_size(pack->engine, object, &bytes));
        known = ligi_cache_file_open(cache, pack->id, bytes, &self.file);
    }
    if (!known) /* the folder is full, or was removed */
        return pack->ops->object_read(pack->engine, object, ranges, count, arrived, context);
    lig_status status = ligi_alloc(&self.block, BLOCK, "a block of a pack");
    if (status == LIG_OK)
        status = read_ranges(&self, ranges, count, arrived, context);
    free(self.block);
    ligi_cache_file_close(cache, &self.file);
    return status;
}
