#include "store/load/read_ranges.h"

#include "backend/range.h"
#include "base/error.h"
#include "base/hash.h"
#include "tensor/memory.h"

#include <stdlib.h>

#define WARM_BYTES (UINT64_C(1) << 20) /* smaller reads take negligible time */

static lig_status does_not_fit(const ligi_fetch *fetch, size_t tensor)
{
    const lig_stored_tensor *stored = &fetch->model->manifest.tensors[tensor];
    return lig_fail(LIG_E_CORRUPT, "model '%s': checksum mismatch in tensor '%s' in pack %016llx",
                    fetch->model->record.about.name, stored->tensor.name,
                    (unsigned long long)stored->pack);
}

static lig_status copy_inline(const ligi_fetch *fetch, const ligi_part *part)
{
    const lig_range *range = &part->range;
    const uint8_t *from = fetch->model->inline_data + range->offset;
    for (uint64_t at = 0; range->hashes && at < range->bytes; at += LIG_BLOCK_BYTES) {
        uint64_t left = range->bytes - at;
        uint64_t bytes = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
        if (ligi_hash64(fetch->store->secret, from + at, bytes) !=
            range->hashes[at / LIG_BLOCK_BYTES])
            return does_not_fit(fetch, part->tensor);
    }
    return ligi_memory_from_host(range->data, from, range->bytes, range->memory, range->device);
}

lig_status ligi_fetch_add(ligi_fetch *fetch, size_t tensor, uint64_t offset, uint64_t bytes,
                          void *data, const lig_tensor *like)
{
    if (bytes == 0)
        return LIG_OK;
    const lig_stored_tensor *stored = &fetch->model->manifest.tensors[tensor];
    ligi_part part = {.pack = stored->pack,
                      .tensor = tensor,
                      .range = {.data = data, .bytes = bytes, .offset = stored->offset + offset}};
    if (like != NULL) {
        part.range.memory = like->memory;
        part.range.device = like->device;
    }
    if (fetch->verify && !fetch->store->keyless)
        part.range.hashes = fetch->model->manifest.hashes[tensor] + offset / LIG_BLOCK_BYTES;
    if (part.pack == 0)
        return copy_inline(fetch, &part);
    LIG_TRY(ligi_grow(&fetch->parts, &fetch->capacity, fetch->count + 1, sizeof *fetch->parts,
                      "a read"));
    fetch->parts[fetch->count++] = part;
    return LIG_OK;
}

static int compare(const void *a, const void *b)
{
    const ligi_part *left = a, *right = b;
    if (left->pack != right->pack)
        return left->pack < right->pack ? -1 : 1;
    if (left->range.offset != right->range.offset)
        return left->range.offset < right->range.offset ? -1 : 1;
    if (left->range.data != right->range.data)
        return (uintptr_t)left->range.data < (uintptr_t)right->range.data ? -1 : 1;
    return 0;
}

/* In ascending order, with tensors that are tied on both sides only once. */
static void sort(ligi_fetch *fetch)
{
    int sorted = 1;
    for (size_t i = 1; i < fetch->count && sorted; i++)
        sorted = compare(&fetch->parts[i - 1], &fetch->parts[i]) < 0;
    if (sorted)
        return;
    qsort(fetch->parts, fetch->count, sizeof *fetch->parts, compare);
    size_t kept = 1;
    for (size_t i = 1; i < fetch->count; i++) {
        const ligi_part *last = &fetch->parts[kept - 1], *next = &fetch->parts[i];
        if (compare(last, next) != 0 || last->range.bytes != next->range.bytes)
            fetch->parts[kept++] = *next;
    }
    fetch->count = kept;
}

/* Reads fetch->ranges of a pack; if the pack was removed, from its mapping. */
static lig_status read_ranges(const ligi_fetch *fetch, uint64_t pack, size_t count, size_t *bad)
{
    ligi_volume *volume = fetch->store->volume;
    const void *secret = fetch->store->secret;
    lig_status status =
        volume->ops->pack_read(volume->self, pack, secret, fetch->ranges, count, bad);
    const lig_range *last = &fetch->ranges[count - 1];
    uint64_t from = fetch->ranges[0].offset, to = last->offset + last->bytes;
    if (status == LIG_OK && fetch->warm && volume->ops->pack_warm != NULL &&
        to - from >= WARM_BYTES)
        volume->ops->pack_warm(volume->self, pack, from, to);
    const lig_mapping *mapping =
        status == LIG_E_NOTFOUND && fetch->maps ? ligi_maps_find(fetch->maps, pack) : NULL;
    if (mapping == NULL)
        return status;
    status = LIG_OK;
    for (*bad = 0; *bad < count && status == LIG_OK; *bad += status == LIG_OK)
        status = ligi_range_copy(mapping->base, mapping->bytes, pack, secret, &fetch->ranges[*bad]);
    return status;
}

/* Parts [first, end), all of one pack. */
static lig_status read_pack(ligi_fetch *fetch, size_t first, size_t end)
{
    size_t count = end - first, bad = SIZE_MAX;
    LIG_TRY(
        ligi_grow(&fetch->ranges, &fetch->range_capacity, count, sizeof *fetch->ranges, "a read"));
    for (size_t i = 0; i < count; i++)
        fetch->ranges[i] = fetch->parts[first + i].range;
    lig_status status = read_ranges(fetch, fetch->parts[first].pack, count, &bad);
    if (status == LIG_E_CORRUPT && bad < count)
        return does_not_fit(fetch, fetch->parts[first + bad].tensor);
    if (status == LIG_E_NOTFOUND)
        *fetch->gone = 1;
    if (status != LIG_OK)
        return ligi_fail_again(*fetch->gone ? LIG_E_CORRUPT : status, "model '%s': %s",
                               fetch->model->record.about.name, lig_error_text());
    return LIG_OK;
}

/* Where the run that begins at `first` ends: ranges of one read are of one pack and do not overlap,
 * and two slices of a tensor may touch the same block. */
static size_t run_end(const ligi_fetch *fetch, size_t first)
{
    const ligi_part *parts = fetch->parts;
    size_t end = first + 1;
    while (end < fetch->count && parts[end].pack == parts[first].pack &&
           parts[end].range.offset >= parts[end - 1].range.offset + parts[end - 1].range.bytes)
        end++;
    return end;
}

lig_status ligi_fetch_run(ligi_fetch *fetch)
{
    sort(fetch);
    lig_status status = LIG_OK;
    for (size_t i = 0; i < fetch->count && status == LIG_OK;) {
        size_t end = run_end(fetch, i);
        status = read_pack(fetch, i, end);
        i = end;
    }
    fetch->count = 0;
    return status;
}

void ligi_fetch_fini(ligi_fetch *fetch)
{
    free(fetch->parts);
    free(fetch->ranges);
}
