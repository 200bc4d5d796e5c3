#include "store/save/save_plan.h"

#include "base/error.h"
#include "store/catalog/model_graphs.h"
#include "store/format/metrics_and_tags.h"
#include "store/save/dedup_sources.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <ligament/backend.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_BIG UINT64_C(4096)

/* --- copies --- */

/* Measures when `at` is NULL, copies otherwise: one walk serves both, so that they cannot disagree.
 */
typedef struct arena {
    char *at;
    size_t bytes;
} arena;

static const void *arena_copy(arena *into, const void *data, size_t bytes)
{
    size_t room = (bytes + 7) / 8 * 8;
    into->bytes += room;
    if (into->at == NULL)
        return data;
    char *copy = into->at;
    if (bytes)
        memcpy(copy, data, bytes);
    into->at += room;
    return copy;
}

static const char *arena_copy_text(arena *into, const char *text)
{
    return text ? arena_copy(into, text, strlen(text) + 1) : "";
}

static void arena_copy_tensors(arena *into, const ligi_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        lig_tensor *tensor = &plan->tensors[i];
        size_t bytes = tensor->ndim * sizeof(int64_t);
        const char *name = arena_copy_text(into, tensor->name);
        const int64_t *shape = tensor->ndim ? arena_copy(into, tensor->shape, bytes) : NULL;
        const int64_t *strides = tensor->strides ? arena_copy(into, tensor->strides, bytes) : NULL;
        if (into->at == NULL)
            continue;
        tensor->name = name;
        tensor->shape = shape;
        tensor->strides = strides;
    }
}

static void arena_copy_places(arena *into, const ligi_plan *plan)
{
    for (size_t i = 0; i < plan->count && plan->places; i++) {
        ligi_box_position *place = &plan->places[i];
        size_t bytes = plan->tensors[i].ndim * sizeof(int64_t);
        if (place->whole == NULL || bytes == 0)
            continue;
        const int64_t *whole = arena_copy(into, place->whole, bytes);
        const int64_t *start = arena_copy(into, place->start, bytes);
        if (into->at)
            *place = (ligi_box_position){whole, start};
    }
}

static void arena_copy_options(arena *into, ligi_plan *plan)
{
    ligi_about about = plan->about;
    about.name = arena_copy_text(into, about.name);
    about.parent_name = arena_copy_text(into, about.parent_name);
    about.meta = arena_copy_text(into, about.meta);
    const char *structure = arena_copy_text(into, plan->structure);
    about.metrics =
        (lig_metric *)arena_copy(into, about.metrics, about.metric_count * sizeof *about.metrics);
    about.tags = (lig_tag *)arena_copy(into, about.tags, about.tag_count * sizeof *about.tags);
    for (size_t i = 0; i < about.metric_count; i++) {
        const char *name = arena_copy_text(into, about.metrics[i].name);
        if (into->at)
            about.metrics[i].name = name;
    }
    for (size_t i = 0; i < about.tag_count; i++) {
        const char *name = arena_copy_text(into, about.tags[i].name);
        const char *value = arena_copy_text(into, about.tags[i].value);
        if (into->at)
            about.tags[i] = (lig_tag){name, value};
    }
    if (into->at) {
        plan->about = about;
        plan->structure = structure;
    }
}

static lig_status copy_all(ligi_plan *plan)
{
    arena into = {0};
    arena_copy_tensors(&into, plan);
    arena_copy_places(&into, plan);
    arena_copy_options(&into, plan);
    LIG_TRY(ligi_alloc(&plan->memory, into.bytes, "the names and shapes of a save"));
    into = (arena){.at = plan->memory};
    arena_copy_tensors(&into, plan);
    arena_copy_places(&into, plan);
    arena_copy_options(&into, plan);
    return LIG_OK;
}

/* --- ties --- */

static int same_numbers(const int64_t *a, const int64_t *b, uint32_t count)
{
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

static int same_memory(const lig_tensor *a, const lig_tensor *b)
{
    if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim ||
        a->memory != b->memory || a->device != b->device ||
        !same_numbers(a->shape, b->shape, a->ndim))
        return 0;
    int flat_a = lig_tensor_contiguous(a), flat_b = lig_tensor_contiguous(b);
    if (flat_a || flat_b)
        return flat_a && flat_b;
    return same_numbers(a->strides, b->strides, a->ndim);
}

/* An open table of indexes, hashed by address; several tensors may begin at one address. */
static lig_status find_ties(ligi_plan *plan)
{
    size_t capacity = 16;
    while (capacity < plan->count * 2)
        capacity *= 2;
    uint32_t *table;
    LIG_TRY(ligi_calloc(&table, capacity, sizeof *table, "ties"));
    for (size_t i = 0; i < plan->count; i++) {
        plan->slots[i].tied = SIZE_MAX;
        const lig_tensor *tensor = &plan->tensors[i];
        if (tensor->bytes == 0 || tensor->data == NULL)
            continue;
        size_t at = (size_t)(((uintptr_t)tensor->data * UINT64_C(0x9E3779B97F4A7C15)) >> 20);
        for (at &= capacity - 1; table[at]; at = (at + 1) & (capacity - 1))
            if (same_memory(&plan->tensors[table[at] - 1], tensor))
                break;
        if (table[at])
            plan->slots[i].tied = table[at] - 1;
        else
            table[at] = (uint32_t)(i + 1);
    }
    free(table);
    return LIG_OK;
}

/* --- the plan --- */

/* Callers that were built when the options ended earlier do not have the later members. */
#define HAS(options, member)                                                                       \
    ((options)->struct_bytes >= offsetof(lig_save_options, member) + sizeof((options)->member))

static lig_status take_options(ligi_plan *plan, const lig_save_options *options)
{
    plan->structure = "";
    plan->about.parent_name = "";
    plan->about.meta = "";
    if (options == NULL)
        return LIG_OK;
    if (options->struct_bytes < offsetof(lig_save_options, ref))
        return lig_fail(LIG_E_INVALID, "save options were not initialised with LIG_SAVE_INIT");
    if (options->flags & ~LIG_SAVE_REPLACE)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x in save options", options->flags);
    LIG_TRY(ligi_metrics_check(options->metrics, options->metric_count));
    LIG_TRY(ligi_tags_check(options->tags, options->tag_count, 0));
    LIG_TRY(ligi_text_check("meta", options->meta));
    LIG_TRY(ligi_text_check("structure", options->structure));
    plan->flags = options->flags;
    plan->ref = HAS(options, ref) ? options->ref : NULL;
    plan->model = HAS(options, model) ? options->model : NULL;
    if (options->parent) {
        plan->about.parent_name = options->parent;
    } else if (options->match) {
        plan->about.parent_name = options->match->model->name;
        plan->about.parent = options->match->model->id;
    }
    plan->about.meta = options->meta ? options->meta : "";
    plan->structure = options->structure ? options->structure : "";
    plan->about.metrics = (lig_metric *)options->metrics;
    plan->about.metric_count = options->metric_count;
    plan->about.tags = (lig_tag *)options->tags;
    plan->about.tag_count = options->tag_count;
    return LIG_OK;
}

static lig_status take_graphs(ligi_plan *plan, const ligi_plan_input *input)
{
    if (input->options == NULL || input->options->graph_count == 0)
        return LIG_OK;
    ligi_graphs graphs = {0};
    lig_status status = ligi_graphs_make(&graphs, input->options->graphs,
                                         input->options->graph_count, input->tensors, input->count);
    if (status == LIG_OK) {
        ligi_graphs_put(&plan->graphs, &graphs);
        status = plan->graphs.status;
    }
    ligi_graphs_fini(&graphs);
    return status;
}

static lig_status check_box(const lig_tensor *tensor, const lig_box *box)
{
    uint64_t bytes;
    if (tensor->ndim && box->start == NULL)
        return lig_fail(LIG_E_INVALID, "tensor '%s': the start of its box is NULL", tensor->name);
    if (ligi_shape_bytes(box->shape, tensor->ndim, tensor->dtype, &bytes) != LIG_OK)
        return lig_fail(LIG_E_INVALID, "tensor '%s': invalid shape of the whole tensor",
                        tensor->name);
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (box->start[d] < 0 || box->start[d] > box->shape[d] ||
            tensor->shape[d] > box->shape[d] - box->start[d])
            return lig_fail(LIG_E_INVALID,
                            "tensor '%s': its box exceeds dimension %u, which has %lld elements",
                            tensor->name, d, (long long)box->shape[d]);
    return LIG_OK;
}

static lig_status take_boxes(ligi_plan *plan, const ligi_plan_input *input)
{
    const lig_save_options *options = input->options;
    if (options && options->boxes && options->part == NULL)
        return lig_fail(LIG_E_INVALID,
                        "boxes can only be saved as a part (set `part` in the save options)");
    if (input->places) {
        LIG_TRY(ligi_calloc(&plan->places, plan->count, sizeof *plan->places, "boxes"));
        memcpy(plan->places, input->places, plan->count * sizeof *plan->places);
        plan->shown_count = input->shown_count;
    }
    if (options == NULL || options->part == NULL)
        return LIG_OK;
    plan->part = options->part;
    LIG_TRY(ligi_calloc(&plan->places, plan->count, sizeof *plan->places, "boxes"));
    LIG_TRY(ligi_calloc(&plan->orders, plan->count, sizeof *plan->orders, "boxes"));
    for (size_t i = 0; i < plan->count; i++) {
        const lig_box *box = options->boxes ? &options->boxes[i] : NULL;
        plan->orders[i] = box ? box->order : i;
        if (box == NULL || box->shape == NULL)
            continue;
        LIG_TRY(check_box(&plan->tensors[i], box));
        if (!same_numbers(box->shape, plan->tensors[i].shape, plan->tensors[i].ndim))
            plan->places[i] = (ligi_box_position){box->shape, box->start};
    }
    return LIG_OK;
}

lig_status ligi_plan_make(ligi_plan *plan, const ligi_plan_input *input)
{
    size_t count = input->count;
    if (count > UINT32_MAX - 1)
        return lig_fail(LIG_E_LIMIT, "too many tensors for one model: %zu", count);
    plan->about.name = input->name;
    plan->count = count;
    LIG_TRY(take_options(plan, input->options));
    LIG_TRY(take_graphs(plan, input));
    LIG_TRY(ligi_alloc(&plan->tensors, (count + 1) * sizeof *plan->tensors, "a save"));
    LIG_TRY(ligi_calloc(&plan->slots, count, sizeof *plan->slots, "a save"));
    if (count)
        memcpy(plan->tensors, input->tensors, count * sizeof *plan->tensors);
    LIG_TRY(take_boxes(plan, input));
    if (input->copy)
        LIG_TRY(copy_all(plan));
    LIG_TRY(find_ties(plan));
    for (size_t i = 0; i < count; i++) {
        if (plan->slots[i].tied != SIZE_MAX)
            continue;
        plan->slots[i].first_hash = plan->hash_count;
        plan->hash_count += ligi_manifest_block_count(plan->tensors[i].bytes);
        if (__builtin_add_overflow(plan->bytes, plan->tensors[i].bytes, &plan->bytes) ||
            plan->bytes > INT64_MAX / 2)
            return lig_fail(LIG_E_LIMIT, "the tensors of '%s' exceed 2^62 bytes", input->name);
    }
    return ligi_calloc(&plan->hashes, plan->hash_count, sizeof *plan->hashes, "checksums");
}

uint64_t ligi_plan_place(ligi_plan *plan, size_t index, uint64_t at, int in_pack)
{
    uint64_t bytes = plan->tensors[index].bytes;
    uint64_t align = in_pack && bytes >= LIG_BLOCK_BYTES ? ALIGN_BIG : LIGI_ALIGN_SMALL;
    plan->slots[index].offset = (at + align - 1) / align * align;
    return plan->slots[index].offset + bytes;
}

lig_status ligi_plan_record(const ligi_plan *plan, uint64_t pack, ligi_record *record)
{
    size_t capacity = 0;
    record->tensor_count = plan->shown_count ? plan->shown_count : plan->count;
    record->bytes = record->own_bytes = 0;
    record->uses = NULL;
    record->use_count = 0;
    if (pack)
        LIG_TRY(ligi_record_use(record, &capacity, pack, 0));
    for (size_t i = 0; i < plan->count; i++) {
        const ligi_slot *slot = &plan->slots[i];
        uint64_t bytes = plan->tensors[i].bytes;
        if (slot->tied != SIZE_MAX)
            continue;
        record->bytes += bytes;
        if (slot->owner == 0 || slot->owner == plan->about.id)
            record->own_bytes += bytes;
        if ((slot->pack || pack) && bytes)
            LIG_TRY(ligi_record_use(record, &capacity, slot->pack ? slot->pack : pack, 1));
    }
    return LIG_OK;
}

void ligi_plan_fini(ligi_plan *plan)
{
    if (plan->begun)
        plan->begun->abort(plan->begun);
    free(plan->tensors);
    free(plan->slots);
    free(plan->places);
    free(plan->orders);
    free(plan->hashes);
    free(plan->memory);
    ligi_shares_close(plan->shares);
    free(plan->parent_name);
    ligi_writer_fini(&plan->graphs);
    memset(plan, 0, sizeof *plan);
}
