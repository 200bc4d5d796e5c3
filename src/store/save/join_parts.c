#include "base/error.h"
#include "base/map.h"
#include "store/format/metrics_and_tags.h"
#include "store/format/tensor_boxes.h"
#include "store/load/pins.h"
#include "store/save/save_part.h"
#include "tensor/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than a commit takes. */
#define LEASE_NS (INT64_C(3600) * 1000000000)

typedef struct entry { /* one tensor of one part */
    size_t part, index;
    uint64_t order;
    const lig_stored_tensor *stored;
    const ligi_box_position *place;
} entry;

typedef struct joining {
    lig_store *store;
    const char *name;
    ligi_part_read *parts;
    size_t part_count;
    entry *entries; /* in the order of the model */
    size_t count, shown_count;
    lig_tensor *tensors;
    ligi_box_position *places;
    ligi_pin *pin;
} joining;

/* --- what there is --- */

static lig_status read_parts(joining *self, const lig_part_data *data)
{
    for (size_t i = 0; i < self->part_count; i++) {
        lig_status status =
            ligi_part_parse(data[i].data, data[i].bytes, self->store->uuid, &self->parts[i]);
        if (status != LIG_OK)
            return ligi_fail_again(status, "part %zu of '%s': %s", i, self->name, lig_error_text());
        self->count += self->parts[i].manifest.tensor_count;
    }
    return LIG_OK;
}

static int by_start(const entry *a, const entry *b)
{
    for (uint32_t d = 0; a->place->whole && b->place->whole && d < a->stored->tensor.ndim &&
                         d < b->stored->tensor.ndim;
         d++)
        if (a->place->start[d] != b->place->start[d])
            return a->place->start[d] < b->place->start[d] ? -1 : 1;
    return 0;
}

static int by_order(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    int order = strcmp(a->stored->tensor.name, b->stored->tensor.name);
    if (order == 0)
        order = by_start(a, b);
    if (order == 0)
        order = a->part < b->part ? -1 : a->part > b->part;
    return order ? order : a->index < b->index ? -1 : a->index > b->index;
}

static lig_status sort_entries(joining *self)
{
    size_t at = 0;
    LIG_TRY(ligi_calloc(&self->entries, self->count, sizeof *self->entries, "a model"));
    for (size_t i = 0; i < self->part_count; i++) {
        const ligi_part_read *part = &self->parts[i];
        for (size_t j = 0; j < part->manifest.tensor_count; j++)
            self->entries[at++] = (entry){i, j, part->orders[j], &part->manifest.tensors[j],
                                          &part->manifest.places[j]};
    }
    if (at)
        qsort(self->entries, at, sizeof *self->entries, by_order);
    return LIG_OK;
}

/* --- whether it makes whole tensors --- */

static const int64_t *whole_of(const entry *one)
{
    return one->place->whole ? one->place->whole : one->stored->tensor.shape;
}

static int same_name(const entry *a, const entry *b)
{
    return strcmp(a->stored->tensor.name, b->stored->tensor.name) == 0;
}

static const char *shape_text(const entry *one, char *text, size_t bytes)
{
    const lig_tensor *tensor = &one->stored->tensor;
    int at = snprintf(text, bytes, "%s [", lig_dtype_name(tensor->dtype));
    for (uint32_t d = 0; d < tensor->ndim && at > 0 && (size_t)at + 30 < bytes; d++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%lld", d ? ", " : "",
                       (long long)whole_of(one)[d]);
    snprintf(text + at, bytes - (size_t)at, "]");
    return text;
}

static lig_status check_alike(const joining *self, const entry *a, const entry *b)
{
    const lig_tensor *left = &a->stored->tensor, *right = &b->stored->tensor;
    if (left->dtype == right->dtype && left->ndim == right->ndim &&
        (left->ndim == 0 || memcmp(whole_of(a), whole_of(b), left->ndim * sizeof(int64_t)) == 0))
        return LIG_OK;
    char one[200], other[200];
    return lig_fail(LIG_E_MISMATCH, "model '%s': tensor '%s' is %s in part %zu and %s in part %zu",
                    self->name, left->name, shape_text(a, one, sizeof one), a->part,
                    shape_text(b, other, sizeof other), b->part);
}

/* "part 3", or "parts 0, 1 and 4". */
static const char *parts_text(const entry *first, size_t count, char *text, size_t bytes)
{
    int at = snprintf(text, bytes, "part%s", count > 1 ? "s" : "");
    for (size_t i = 0; i < count && (size_t)at + 30 < bytes; i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%zu",
                       i == 0           ? " "
                       : i + 1 == count ? " and "
                                        : ", ",
                       first[i].part);
    return text;
}

/* Entries [first, end) have one name. */
static lig_status check_group(const joining *self, size_t first, size_t end, ligi_tile *tiles)
{
    const entry *entries = self->entries;
    const lig_tensor *tensor = &entries[first].stored->tensor;
    int64_t zeros[LIG_NDIM_MAX] = {0};
    for (size_t i = first; i < end; i++) {
        LIG_TRY(check_alike(self, &entries[first], &entries[i]));
        tiles[i - first] = (ligi_tile){entries[i].place->whole ? entries[i].place->start : zeros,
                                       entries[i].stored->tensor.shape};
    }
    /* A scalar, or a tensor without elements, has no volume by which a duplicate could be
     * detected. */
    if (end - first > 1 && entries[first].place->whole == NULL && tensor->bytes == 0)
        return lig_fail(LIG_E_MISMATCH, "model '%s': more than one part contains tensor '%s'",
                        self->name, tensor->name);
    lig_status status =
        ligi_tiling_check(whole_of(&entries[first]), tensor->ndim, tiles, end - first);
    char text[100];
    if (status != LIG_OK)
        return ligi_fail_again(
            status, "model '%s': tensor '%s' of %s: %s", self->name, tensor->name,
            parts_text(&entries[first], end - first, text, sizeof text), lig_error_text());
    return LIG_OK;
}

static lig_status check_names(const joining *self, ligi_map *names, size_t index)
{
    const entry *one = &self->entries[index];
    const char *name = one->stored->tensor.name;
    uint64_t before;
    lig_status status = ligi_map_insert(names, name, strlen(name), index, &before);
    if (status != LIG_E_EXISTS)
        return status;
    return lig_fail(LIG_E_MISMATCH,
                    "model '%s': tensor '%s' has order %llu in part %zu and %llu in part %zu",
                    self->name, name, (unsigned long long)self->entries[before].order,
                    self->entries[before].part, (unsigned long long)one->order, one->part);
}

static lig_status check_all(joining *self)
{
    ligi_tile *tiles;
    ligi_map names = {0};
    LIG_TRY(ligi_calloc(&tiles, self->count, sizeof *tiles, "boxes"));
    lig_status status = ligi_map_reserve(&names, self->count);
    for (size_t i = 0; i < self->count && status == LIG_OK;) {
        size_t end = i + 1;
        while (end < self->count && self->entries[end].order == self->entries[i].order &&
               same_name(&self->entries[i], &self->entries[end]))
            end++;
        status = check_names(self, &names, i);
        if (status == LIG_OK)
            status = check_group(self, i, end, tiles);
        self->shown_count++;
        i = end;
    }
    ligi_map_fini(&names);
    free(tiles);
    return status;
}

/* --- the model --- */

/* Tensors that were tied in their part have one address here, which is never read. */
static lig_status describe(joining *self)
{
    size_t *position = NULL, *base = NULL, total = 0;
    LIG_TRY(ligi_calloc(&self->tensors, self->count, sizeof *self->tensors, "a model"));
    LIG_TRY(ligi_calloc(&self->places, self->count, sizeof *self->places, "a model"));
    LIG_TRY(ligi_calloc(&base, self->part_count, sizeof *base, "a model"));
    lig_status status = ligi_calloc(&position, self->count, sizeof *position, "a model");
    for (size_t i = 0; i < self->part_count && status == LIG_OK; i++) {
        base[i] = total;
        total += self->parts[i].manifest.tensor_count;
    }
    for (size_t i = 0; i < self->count && status == LIG_OK; i++)
        position[base[self->entries[i].part] + self->entries[i].index] = i;
    for (size_t i = 0; i < self->count && status == LIG_OK; i++) {
        const entry *one = &self->entries[i];
        size_t token =
            one->stored->tied < 0 ? i : position[base[one->part] + (size_t)one->stored->tied];
        self->tensors[i] = one->stored->tensor;
        self->tensors[i].data = &self->tensors[token];
        self->places[i] = *one->place;
    }
    free(position);
    free(base);
    return status;
}

static void place_all(const joining *self, ligi_plan *plan)
{
    for (size_t i = 0; i < self->count; i++) {
        const entry *one = &self->entries[i];
        ligi_slot *slot = &plan->slots[i];
        if (slot->tied != SIZE_MAX)
            continue;
        slot->owner = one->stored->owner;
        slot->pack = one->stored->pack;
        slot->offset = one->stored->pack ? one->stored->offset : 0;
        plan->packed |= slot->pack != 0;
        size_t blocks = ligi_manifest_block_count(one->stored->tensor.bytes);
        if (blocks)
            memcpy(plan->hashes + slot->first_hash,
                   self->parts[one->part].manifest.hashes[one->index],
                   blocks * sizeof *plan->hashes);
    }
}

/* The bytes received with the parts. */
static lig_status fill(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out)
{
    const joining *self = context;
    const entry *one = &self->entries[index];
    memcpy(out, self->parts[one->part].data + one->stored->offset + offset, bytes);
    return LIG_OK;
}

/* The writer of a part pins it, and may die before the commit: from here on this process pins it
 * too. */
static lig_status pin_packs(joining *self, const ligi_plan *plan)
{
    ligi_volume *volume = self->store->volume;
    ligi_record record = {0};
    LIG_TRY(ligi_plan_record(plan, 0, &record));
    lig_status status = LIG_OK;
    if (record.use_count)
        status = ligi_pin_take(self->store, record.uses, record.use_count, LEASE_NS, &self->pin);
    free(record.uses);
    for (size_t i = 0; i < self->part_count && status == LIG_OK; i++) {
        uint64_t bytes = 0;
        if (self->parts[i].pack == 0)
            continue;
        status = volume->ops->pack_size(volume->self, self->parts[i].pack, &bytes);
        if (status == LIG_E_NOTFOUND)
            status = lig_fail(
                status,
                "part %zu of '%s' no longer exists: it was closed, or its process has ended", i,
                self->name);
        else if (status == LIG_OK && bytes != self->parts[i].pack_bytes)
            status =
                lig_fail(LIG_E_CORRUPT, "part %zu of '%s' has %llu bytes, but %llu were written", i,
                         self->name, (unsigned long long)bytes,
                         (unsigned long long)self->parts[i].pack_bytes);
    }
    return status;
}

static lig_status make_model(joining *self, const lig_save_options *options)
{
    ligi_plan plan = {0};
    ligi_plan_input input = {self->name, self->tensors, self->count,      options,
                             0,          self->places,  self->shown_count};
    ligi_source source = {.fill = fill, .context = self};
    lig_status status = ligi_plan_make(&plan, &input);
    if (status == LIG_OK) {
        plan.about.created_ns = ligi_date_ns();
        place_all(self, &plan);
        status = ligi_save_check(self->store, &plan);
    }
    if (status == LIG_OK)
        status = pin_packs(self, &plan);
    if (status == LIG_OK)
        status = ligi_save_run(self->store, &plan, &source);
    ligi_plan_fini(&plan);
    return status;
}

static lig_status join(joining *self, const lig_part_data *data, const lig_save_options *options)
{
    LIG_TRY(ligi_calloc(&self->parts, self->part_count, sizeof *self->parts, "a model"));
    LIG_TRY(read_parts(self, data));
    LIG_TRY(sort_entries(self));
    LIG_TRY(check_all(self));
    LIG_TRY(describe(self));
    return make_model(self, options);
}

lig_status lig_store_join(lig_store *store, const char *model, const lig_part_data *parts,
                          size_t count, const lig_save_options *options)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    if (count == 0)
        return lig_fail(LIG_E_INVALID, "joining a model requires at least one part");
    if (options && (options->match || options->boxes || options->part))
        return lig_fail(LIG_E_INVALID,
                        "invalid options for a join: a match, boxes and `part` apply to the parts");
    for (size_t i = 0; i < count; i++)
        if (parts[i].data == NULL)
            return lig_fail(LIG_E_INVALID, "part %zu of '%s' has no bytes", i, model);
    if (store->remote)
        return store->remote->join(store, model, parts, count, options);
    joining self = {.store = store, .name = model, .part_count = count};
    lig_status status = join(&self, parts, options);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_pin_release(self.pin);
    for (size_t i = 0; self.parts && i < count; i++)
        ligi_part_read_fini(&self.parts[i]);
    free(self.parts);
    free(self.entries);
    free(self.tensors);
    free(self.places);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}
