#include "backend/remote/cache/pack_cache.h"

#include "backend/remote/cache/cache_files.h"
#include "base/error.h"
#include "base/threads/team.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK LIG_BLOCK_BYTES
/* Missing blocks are read together up to this many bytes: memory of one read. */
#define FETCH_BYTES (UINT64_C(64) << 20)
/* Several threads read this much: reading cached bytes is copying and hashing. */
#define TEAM_BYTES (UINT64_C(4) << 20)

typedef struct cached_read {
    ligi_remote_cache *cache;
    const ligi_cached_pack *pack;
    const ligi_object_range *ranges;
    size_t count;
    ligi_object_arrived arrived;
    void *context;
    ligi_cache_file file;
    uint8_t *absent;                /* of each range: 1 if the cache lacks it, or has it damaged */
    uint8_t *blocks[LIGI_TEAM_MAX]; /* of members of the team; NULL: not needed yet */
} cached_read;

static uint64_t block_bytes(const cached_read *self, uint64_t block)
{
    uint64_t left = self->file.bytes - block * BLOCK;

    return left < BLOCK ? left : BLOCK;
}

/* --- cached ranges --- */

/* Copies from the cache, comparing whole blocks with their checks; 0 if one is missing or damaged.
 * `block` has room for one. */
static int copy_checked(const cached_read *self, const ligi_object_range *range, uint8_t *block)
{
    uint8_t *to = range->data;
    uint64_t at = range->offset, end = range->offset + range->bytes;

    while (at < end) {
        uint64_t number = at / BLOCK, inside = at % BLOCK, bytes = block_bytes(self, number);
        uint64_t step = bytes - inside < end - at ? bytes - inside : end - at;
        uint8_t *whole = step == bytes ? to : block;
        if (!ligi_cache_block_get(&self->file, number, whole, bytes))
            return 0;
        if (whole != to)
            memcpy(to, whole + inside, step);
        to += step;
        at += step;
    }
    return 1;
}

/* Damage may be in the cache only: a damaged range counts as absent, and is fetched. */
static lig_status read_one(void *context, size_t index, unsigned member)
{
    cached_read *self = context;
    const ligi_object_range *range = &self->ranges[index];
    uint8_t **block = &self->blocks[member];
    lig_status status = LIG_OK;

    if (range->offset + range->bytes > self->file.bytes)
        return lig_fail(LIG_E_CORRUPT, "the pack is shorter than the range");
    if (!self->pack->verified && *block == NULL)
        LIG_TRY(ligi_alloc(block, BLOCK, "a block of a pack"));
    int there = self->pack->verified
                    ? ligi_cache_bytes_get(&self->file, range->offset, range->data, range->bytes)
                    : copy_checked(self, range, *block);
    if (there && self->arrived != NULL)
        status = self->arrived(self->context, index);
    self->absent[index] = !there || status == LIG_E_CORRUPT;
    return status == LIG_E_CORRUPT ? LIG_OK : status;
}

static unsigned team_size(const cached_read *self)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < self->count; i++)
        bytes += self->ranges[i].bytes;
    return bytes < TEAM_BYTES ? 1 : 0;
}

static lig_status read_cached(cached_read *self)
{
    lig_status status = ligi_team_once(team_size(self), read_one, self, self->count);

    for (size_t i = 0; i < LIGI_TEAM_MAX; i++)
        free(self->blocks[i]);
    return status;
}

/* --- what is missing --- */

typedef struct fetch {
    cached_read *read;
    const size_t *missing;     /* indices of ranges */
    ligi_object_range *wanted; /* whole blocks around them, into `memory` */
    size_t count;
} fetch;

static lig_status block_arrived(void *context, size_t index)
{
    fetch *self = context;
    cached_read *read = self->read;
    const ligi_object_range *wanted = &self->wanted[index],
                            *range = &read->ranges[self->missing[index]];
    const uint8_t *from = wanted->data;

    for (uint64_t at = 0; at < wanted->bytes; at += BLOCK) {
        uint64_t left = wanted->bytes - at;
        ligi_cache_block_put(&read->file, (wanted->offset + at) / BLOCK, from + at,
                             left < BLOCK ? left : BLOCK);
    }
    memcpy(range->data, from + (range->offset - wanted->offset), range->bytes);
    return read->arrived != NULL ? read->arrived(read->context, self->missing[index]) : LIG_OK;
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
        self->wanted[count] = around(self->read, &self->read->ranges[self->missing[count]]);
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

static lig_status fetch_absent(cached_read *self)
{
    fetch rest = {.read = self};
    size_t *missing;

    LIG_TRY(ligi_calloc(&missing, self->count + 1, sizeof *missing, "a read of a pack"));
    for (size_t i = 0; i < self->count; i++)
        if (self->absent[i])
            missing[rest.count++] = i;
    rest.missing = missing;
    lig_status status =
        ligi_calloc(&rest.wanted, rest.count + 1, sizeof *rest.wanted, "a read of a pack");
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
    cached_read self = {.cache = cache,
                        .pack = pack,
                        .ranges = ranges,
                        .count = count,
                        .arrived = arrived,
                        .context = context};
    ligi_object object = {LIGI_OBJECT_PACK, pack->id};
    uint64_t bytes = 0;

    int known = ligi_cache_file_open(cache, pack->id, 0, &self.file);
    if (!known) {
        LIG_TRY(pack->ops->object_size(pack->engine, object, &bytes));
        known = ligi_cache_file_open(cache, pack->id, bytes, &self.file);
    }
    if (!known) /* the folder is full, or was removed */
        return pack->ops->object_read(pack->engine, object, ranges, count, arrived, context);
    lig_status status = ligi_calloc(&self.absent, count + 1, 1, "a read of a pack");
    if (status == LIG_OK)
        status = read_cached(&self);
    if (status == LIG_OK)
        status = fetch_absent(&self);
    free(self.absent);
    ligi_cache_file_close(cache, &self.file);
    return status;
}
