#include "backend/remote/remote_read.h"

#include "backend/remote/cache/pack_cache.h"
#include "tensor/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Ranges with gaps of at most this are read together: a request costs more than these bytes. */
#define GAP_BYTES (UINT64_C(64) << 10)
/* Memory for what is not read into place; more is read in several rounds. */
#define STAGE_BYTES (UINT64_C(128) << 20)

/* A part of a range, at most limits.range_bytes, beginning at one of its blocks. */
typedef struct read_part {
    uint32_t range;
    uint64_t at, bytes; /* in the range */
    uint64_t offset;    /* in the pack */
} read_part;

/* One request: parts that are close together. */
typedef struct read_request {
    size_t first, count; /* parts */
    uint64_t offset, bytes;
    uint8_t *stage; /* NULL: one part, read into place */
} read_request;

typedef struct read_plan {
    ligi_remote_volume *volume;
    const void *secret;
    uint64_t id;
    const lig_range *ranges;
    read_part *parts;
    size_t part_count, part_capacity;
    read_request *requests;
    size_t request_count, request_capacity;
    ligi_object_range *objects;
    uint8_t *stage;
    size_t base;  /* the first request of this round */
    int verified; /* all ranges have hashes */
    atomic_size_t bad;
} read_plan;

static void plan_fini(read_plan *plan)
{
    free(plan->parts);
    free(plan->requests);
    free(plan->objects);
    free(plan->stage);
}

static int by_offset(const void *a, const void *b)
{
    const read_part *left = a, *right = b;

    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (left->range > right->range) - (left->range < right->range);
}

static lig_status cut_ranges(read_plan *plan, size_t count)
{
    uint64_t step = plan->volume->limits.range_bytes;

    plan->verified = 1;
    for (size_t i = 0; i < count; i++) {
        plan->verified &= plan->ranges[i].hashes != NULL;
        for (uint64_t at = 0; at < plan->ranges[i].bytes; at += step) {
            uint64_t left = plan->ranges[i].bytes - at;
            LIG_TRY(ligi_grow(&plan->parts, &plan->part_capacity, plan->part_count + 1,
                              sizeof *plan->parts, "the parts of a read"));
            plan->parts[plan->part_count++] = (read_part){
                (uint32_t)i, at, left < step ? left : step, plan->ranges[i].offset + at};
        }
    }
    if (plan->part_count > 0)
        qsort(plan->parts, plan->part_count, sizeof *plan->parts, by_offset);
    return LIG_OK;
}

static int joins(const read_plan *plan, const read_request *request, const read_part *part)
{
    uint64_t end = request->offset + request->bytes, part_end = part->offset + part->bytes;

    return part->offset <= end + GAP_BYTES &&
           (part_end > end ? part_end : end) - request->offset <= plan->volume->limits.range_bytes;
}

static lig_status join_parts(read_plan *plan)
{
    for (size_t i = 0; i < plan->part_count; i++) {
        const read_part *part = &plan->parts[i];
        read_request *last =
            plan->request_count == 0 ? NULL : &plan->requests[plan->request_count - 1];
        if (last != NULL && joins(plan, last, part)) {
            uint64_t end = part->offset + part->bytes - last->offset;
            last->bytes = end > last->bytes ? end : last->bytes;
            last->count++;
            continue;
        }
        LIG_TRY(ligi_grow(&plan->requests, &plan->request_capacity, plan->request_count + 1,
                          sizeof *plan->requests, "the requests of a read"));
        plan->requests[plan->request_count++] =
            (read_request){.first = i, .count = 1, .offset = part->offset, .bytes = part->bytes};
    }
    return LIG_OK;
}

static int in_place(const read_plan *plan, const read_request *request)
{
    return request->count == 1 &&
           plan->ranges[plan->parts[request->first].range].memory == LIG_MEMORY_HOST;
}

/* --- what has arrived --- */

static lig_status verify(read_plan *plan, const read_part *part, const uint8_t *from)
{
    const lig_range *range = &plan->ranges[part->range];

    for (uint64_t at = 0; range->hashes != NULL && at < part->bytes; at += LIG_BLOCK_BYTES) {
        uint64_t left = part->bytes - at;
        uint64_t bytes = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
        if (lig_hash_block(plan->secret, from + at, bytes) ==
            range->hashes[(part->at + at) / LIG_BLOCK_BYTES])
            continue;
        plan->bad = part->range;
        return lig_fail(LIG_E_CORRUPT,
                        "pack %016" PRIx64 ": checksum mismatch in the block at %" PRIu64, plan->id,
                        part->offset + at);
    }
    return LIG_OK;
}

static lig_status arrived(void *context, size_t index)
{
    read_plan *plan = context;
    const read_request *request = &plan->requests[plan->base + index];

    for (size_t i = 0; i < request->count; i++) {
        const read_part *part = &plan->parts[request->first + i];
        const lig_range *range = &plan->ranges[part->range];
        uint8_t *to = (uint8_t *)range->data + part->at;
        const uint8_t *from =
            request->stage == NULL ? to : request->stage + (part->offset - request->offset);
        LIG_TRY(verify(plan, part, from));
        if (request->stage != NULL)
            LIG_TRY(ligi_memory_from_host(to, from, part->bytes, range->memory, range->device));
    }
    return LIG_OK;
}

/* --- rounds --- */

/* The number of requests from `base` on for which there is room. */
static size_t fill_round(read_plan *plan, uint64_t stage_bytes)
{
    size_t count = 0;
    uint64_t used = 0;

    for (size_t i = plan->base; i < plan->request_count; i++, count++) {
        read_request *request = &plan->requests[i];
        const lig_range *range = &plan->ranges[plan->parts[request->first].range];
        request->stage = NULL;
        if (!in_place(plan, request)) {
            if (used + request->bytes > stage_bytes)
                break;
            request->stage = plan->stage + used;
            used += request->bytes;
        }
        void *to = request->stage != NULL ? (void *)request->stage
                                          : (uint8_t *)range->data + plan->parts[request->first].at;
        plan->objects[count] = (ligi_object_range){to, request->offset, request->bytes};
    }
    return count;
}

static lig_status read_objects(read_plan *plan, size_t count)
{
    ligi_remote_volume *volume = plan->volume;
    ligi_object object = {LIGI_OBJECT_PACK, plan->id};
    ligi_cached_pack pack = {volume->ops, volume->engine, plan->id, plan->verified};

    if (volume->cache != NULL)
        return ligi_remote_cache_read(volume->cache, &pack, plan->objects, count, arrived, plan);
    return volume->ops->object_read(volume->engine, object, plan->objects, count, arrived, plan);
}

static lig_status read_rounds(read_plan *plan)
{
    ligi_remote_volume *volume = plan->volume;
    uint64_t stage_bytes = 0;

    for (size_t i = 0; i < plan->request_count; i++)
        if (!in_place(plan, &plan->requests[i]))
            stage_bytes += plan->requests[i].bytes;
    uint64_t least = volume->limits.range_bytes, most = STAGE_BYTES > least ? STAGE_BYTES : least;
    stage_bytes = stage_bytes < most ? stage_bytes : most;
    LIG_TRY(ligi_alloc(&plan->stage, stage_bytes + 1, "a buffer for reading"));
    LIG_TRY(ligi_calloc(&plan->objects, plan->request_count + 1, sizeof *plan->objects,
                        "the requests of a read"));
    while (plan->base < plan->request_count) {
        size_t count = fill_round(plan, stage_bytes);
        LIG_TRY(read_objects(plan, count));
        plan->base += count;
    }
    return LIG_OK;
}

/* Finds the range that exceeds the pack. */
static lig_status find_beyond(read_plan *plan, size_t count)
{
    uint64_t size;
    ligi_object object = {LIGI_OBJECT_PACK, plan->id};
    lig_status status = plan->volume->ops->object_size(plan->volume->engine, object, &size);

    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        const lig_range *range = &plan->ranges[i];
        if (range->offset <= size && range->bytes <= size - range->offset)
            continue;
        plan->bad = i;
        return lig_fail(LIG_E_CORRUPT,
                        "pack %016" PRIx64 " has %" PRIu64 " bytes, but %" PRIu64
                        " bytes at %" PRIu64 " are requested",
                        plan->id, size, range->bytes, range->offset);
    }
    return LIG_OK;
}

static lig_status check_offsets(const lig_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].bytes > INT64_MAX || ranges[i].offset > INT64_MAX)
            return lig_fail(LIG_E_INVALID, "a range of a pack is out of bounds");
    return LIG_OK;
}

lig_status ligi_remote_pack_read(void *opaque, uint64_t id, const void *secret,
                                 const lig_range *ranges, size_t count, size_t *bad)
{
    ligi_remote *self = opaque;
    read_plan plan = {.volume = self->volume, .secret = secret, .id = id, .ranges = ranges};

    LIG_TRY(ligi_remote_usable(self));
    LIG_TRY(check_offsets(ranges, count));
    plan.bad = SIZE_MAX;
    lig_status status = cut_ranges(&plan, count);
    if (status == LIG_OK)
        status = join_parts(&plan);
    if (status == LIG_OK)
        status = read_rounds(&plan);
    if (status == LIG_E_CORRUPT && plan.bad == SIZE_MAX) {
        lig_status looked = find_beyond(&plan, count);
        if (plan.bad == SIZE_MAX)
            plan.bad = 0;
        status = looked == LIG_OK
                     ? ligi_fail_again(LIG_E_CORRUPT,
                                       "pack %016" PRIx64 " cannot be read completely", id)
                     : looked;
    }
    if (status == LIG_E_CORRUPT)
        *bad = plan.bad;
    plan_fini(&plan);
    return status;
}

/* --- size and maps --- */

static lig_status no_pack(const ligi_remote_volume *volume, uint64_t id)
{
    return lig_fail(LIG_E_NOTFOUND, "there is no pack %016" PRIx64 " at %s", id, volume->name);
}

static lig_status size_of(ligi_remote_volume *volume, uint64_t id, uint64_t *bytes)
{
    ligi_object object = {LIGI_OBJECT_PACK, id};
    lig_status status = volume->ops->object_size(volume->engine, object, bytes);

    return status == LIG_E_NOTFOUND ? no_pack(volume, id) : status;
}

/* A caller that asks for the size is about to use the pack: a condemned one does not exist. A
 * caller that reads has used it before. */
lig_status ligi_remote_pack_size(void *opaque, uint64_t id, uint64_t *bytes)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;

    LIG_TRY(ligi_remote_usable(self));
    pthread_mutex_lock(&volume->lock);
    int condemned = volume->state != NULL && ligi_remote_condemned(volume->state, id, NULL);
    pthread_mutex_unlock(&volume->lock);
    return condemned ? no_pack(volume, id) : size_of(volume, id, bytes);
}

/* The mapping is a copy in memory: it stays valid regardless of the pack. */
lig_status ligi_remote_pack_map(void *opaque, uint64_t id, uint32_t flags, lig_mapping *mapping)
{
    ligi_remote *self = opaque;
    lig_range whole = {0};
    size_t bad;

    LIG_TRY(ligi_remote_usable(self));
    LIG_TRY(size_of(self->volume, id, &whole.bytes));
    uint64_t bytes = whole.bytes == 0 ? 1 : whole.bytes;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return ligi_fail_errno(errno, "out of memory for a copy of pack %016" PRIx64, id);
    whole.data = base;
    lig_status status = ligi_remote_pack_read(opaque, id, NULL, &whole, 1, &bad);
    if (status == LIG_OK && !(flags & LIG_MAP_PRIVATE) && mprotect(base, bytes, PROT_READ) != 0)
        status = ligi_fail_errno(errno, "mprotect failed for pack %016" PRIx64, id);
    if (status != LIG_OK) {
        munmap(base, bytes);
        return status;
    }
    *mapping = (lig_mapping){.base = base, .bytes = whole.bytes};
    return LIG_OK;
}

void ligi_remote_pack_unmap(void *opaque, lig_mapping *mapping)
{
    (void)opaque;
    if (mapping->base != NULL)
        munmap(mapping->base, mapping->bytes == 0 ? 1 : mapping->bytes);
    memset(mapping, 0, sizeof *mapping);
}
