#include "store/serve/message/served_save.h"

#include "base/error.h"
#include "store/serve/message/served_labels.h"
#include "tensor/tensor.h"

#include <ligament/backend.h>

#include <stdlib.h>
#include <string.h>

/* Bytes of the shortest of each. */
enum { TENSOR_LEAST = 6, PART_LEAST = 2, STRETCH_LEAST = 3 };

#define WANTS_ALL                                                                                  \
    (LIGI_SERVED_WANT_REF | LIGI_SERVED_WANT_MODEL | LIGI_SERVED_PART | LIGI_SERVED_IN_PARTS |     \
     LIGI_SERVED_COPY | LIGI_SERVED_PACKED | LIGI_SERVED_WHOLE)

/* --- writing --- */

static void put_shape(ligi_writer *writer, const int64_t *shape, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        ligi_put_varint(writer, (uint64_t)shape[d]);
}

static void put_tensors(ligi_writer *writer, const ligi_served_save *save)
{
    ligi_put_u8(writer, save->places != NULL);
    ligi_put_u8(writer, save->orders != NULL);
    ligi_put_varint(writer, save->shown_count);
    ligi_put_varint(writer, save->count);
    for (size_t i = 0; i < save->count; i++) {
        const lig_tensor *tensor = &save->tensors[i];
        const ligi_box_position *place = save->places ? &save->places[i] : NULL;
        int tied = save->tied && save->tied[i] != LIGI_SERVED_NOT_TIED;
        ligi_put_text(writer, tensor->name);
        ligi_put_varint(writer, tensor->dtype);
        ligi_put_varint(writer, tensor->ndim);
        put_shape(writer, tensor->shape, tensor->ndim);
        ligi_put_varint(writer, tied ? save->tied[i] + 1 : 0);
        ligi_put_u8(writer, place && place->whole);
        if (place && place->whole) {
            put_shape(writer, place->whole, tensor->ndim);
            put_shape(writer, place->start, tensor->ndim);
        }
        if (save->orders)
            ligi_put_varint(writer, save->orders[i]);
    }
}

void ligi_served_save_put(ligi_writer *writer, const ligi_served_save *save)
{
    ligi_put_text(writer, save->name);
    ligi_put_varint(writer, save->flags);
    ligi_put_varint(writer, save->wants);
    ligi_put_u64(writer, (uint64_t)save->created_ns);
    ligi_served_maybe_put(writer, save->parent);
    ligi_put_varint(writer, save->match);
    ligi_put_varint(writer, save->match_model);
    ligi_served_metrics_put(writer, save->metrics, save->metric_count);
    ligi_served_tags_put(writer, save->tags, save->tag_count);
    ligi_put_text(writer, save->meta);
    ligi_put_text(writer, save->structure);
    ligi_served_blob_put(writer, save->graphs, save->graph_bytes);
    put_tensors(writer, save);
    ligi_put_varint(writer, save->part_count);
    for (size_t i = 0; i < save->part_count; i++)
        ligi_served_blob_put(writer, save->parts[i].data, save->parts[i].bytes);
}

/* --- reading --- */

/* Numbers of shapes, as they are read. Their count is bounded by the bytes of the body. */
typedef struct shape_pool {
    int64_t *at, *end;
} shape_pool;

static const int64_t *get_shape(ligi_reader *reader, shape_pool *pool, uint32_t ndim)
{
    int64_t *shape = pool->at;
    if (ndim > pool->end - pool->at) {
        reader->failed = 1;
        return NULL;
    }
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t value = ligi_get_varint(reader);
        if (value > INT64_MAX)
            reader->failed = 1;
        shape[d] = reader->failed ? 0 : (int64_t)value;
    }
    pool->at += ndim;
    return shape;
}

static void get_tie(ligi_reader *reader, const lig_tensor *tensors, uint64_t *tied, size_t index)
{
    uint64_t tie = ligi_get_varint(reader);
    tied[index] = LIGI_SERVED_NOT_TIED;
    if (tie == 0)
        return;
    const lig_tensor *tensor = &tensors[index], *target = &tensors[tie - 1];
    if (tie > index || tied[tie - 1] != LIGI_SERVED_NOT_TIED || target->dtype != tensor->dtype ||
        target->bytes != tensor->bytes || target->ndim != tensor->ndim || tensor->bytes == 0)
        reader->failed = 1;
    else
        tied[index] = tie - 1;
}

static void get_tensor(ligi_reader *reader, shape_pool *pool, lig_tensor *tensor)
{
    tensor->name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
    uint64_t dtype = ligi_get_varint(reader), ndim = ligi_get_varint(reader);
    if (dtype >= LIG_DTYPE_COUNT || lig_dtype_bytes((uint32_t)dtype) == 0 || ndim > LIG_NDIM_MAX) {
        reader->failed = 1;
        return;
    }
    tensor->dtype = (uint16_t)dtype;
    tensor->ndim = (uint32_t)ndim;
    tensor->shape = get_shape(reader, pool, tensor->ndim);
    if (!reader->failed &&
        ligi_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &tensor->bytes) != LIG_OK)
        reader->failed = 1;
}

static void get_place(ligi_reader *reader, shape_pool *pool, uint32_t ndim,
                      ligi_box_position *places, size_t index)
{
    uint8_t boxed = ligi_get_u8(reader);
    if (boxed == 0)
        return;
    if (boxed > 1 || places == NULL || reader->failed) {
        reader->failed = 1;
        return;
    }
    places[index].whole = get_shape(reader, pool, ndim);
    places[index].start = get_shape(reader, pool, ndim);
}

typedef struct tensor_arrays {
    lig_tensor *tensors;
    uint64_t *tied, *orders;
    ligi_box_position *places;
} tensor_arrays;

static lig_status make_arrays(ligi_served_save *save, int placed, int ordered, tensor_arrays *made)
{
    size_t count = save->count;
    LIG_TRY(ligi_calloc(&made->tensors, count, sizeof *made->tensors, "a save"));
    save->tensors = made->tensors;
    LIG_TRY(ligi_calloc(&made->tied, count, sizeof *made->tied, "a save"));
    save->tied = made->tied;
    if (placed)
        LIG_TRY(ligi_calloc(&made->places, count, sizeof *made->places, "a save"));
    save->places = made->places;
    if (ordered)
        LIG_TRY(ligi_calloc(&made->orders, count, sizeof *made->orders, "a save"));
    save->orders = made->orders;
    return LIG_OK;
}

static void sum_up(ligi_reader *reader, ligi_served_save *save, size_t index)
{
    if (save->tied[index] == LIGI_SERVED_NOT_TIED &&
        (__builtin_add_overflow(save->bytes, save->tensors[index].bytes, &save->bytes) ||
         save->bytes > INT64_MAX / 2))
        reader->failed = 1;
}

static lig_status get_tensors(ligi_reader *reader, ligi_served_save *save)
{
    tensor_arrays made = {0};
    uint8_t placed = ligi_get_u8(reader), ordered = ligi_get_u8(reader);
    if (placed > 1 || ordered > 1)
        reader->failed = 1;
    save->shown_count = ligi_get_varint(reader);
    save->count = ligi_get_count(reader, TENSOR_LEAST);
    if (save->shown_count > save->count)
        reader->failed = 1;
    if (save->count == 0 || reader->failed)
        return LIG_OK;
    size_t numbers = reader->bytes - reader->at; /* each takes a byte at least */
    LIG_TRY(ligi_alloc(&save->shapes, numbers * sizeof(int64_t), "shapes"));
    LIG_TRY(make_arrays(save, placed, ordered, &made));
    shape_pool pool = {save->shapes, (int64_t *)save->shapes + numbers};
    for (size_t i = 0; i < save->count && !reader->failed; i++) {
        get_tensor(reader, &pool, &made.tensors[i]);
        get_tie(reader, made.tensors, made.tied, i);
        get_place(reader, &pool, made.tensors[i].ndim, made.places, i);
        if (ordered)
            made.orders[i] = ligi_get_varint(reader);
        sum_up(reader, save, i);
    }
    return LIG_OK;
}

static lig_status get_parts(ligi_reader *reader, ligi_served_save *save)
{
    lig_part_data *parts;
    size_t count = ligi_get_count(reader, PART_LEAST);
    if (count > LIGI_SERVED_PARTS_MAX)
        return lig_fail(LIG_E_LIMIT, "too many parts: %zu, the limit is %d", count,
                        LIGI_SERVED_PARTS_MAX);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&parts, count, sizeof *parts, "parts"));
    save->parts = parts;
    save->part_count = count;
    for (size_t i = 0; i < count; i++)
        parts[i].data = ligi_served_blob_get(reader, &parts[i].bytes);
    return LIG_OK;
}

static lig_status get_labels(ligi_reader *reader, ligi_served_save *save)
{
    lig_metric *metrics = NULL;
    lig_tag *tags = NULL;
    LIG_TRY(ligi_served_metrics_read(reader, &metrics, &save->metric_count));
    save->metrics = metrics;
    LIG_TRY(ligi_served_tags_read(reader, &tags, &save->tag_count));
    save->tags = tags;
    return LIG_OK;
}

lig_status ligi_served_save_get(const void *body, size_t bytes, ligi_served_save *save)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    save->name = ligi_get_text(&reader, LIG_NAME_BYTES_MAX);
    uint64_t flags = ligi_get_varint(&reader), wants = ligi_get_varint(&reader);
    if (flags & ~(uint64_t)(LIG_SAVE_REPLACE | LIG_COPY_NEWER) || wants & ~(uint64_t)WANTS_ALL)
        reader.failed = 1;
    save->flags = (uint32_t)flags;
    save->wants = (uint32_t)wants;
    save->created_ns = (int64_t)ligi_get_u64(&reader);
    save->parent = ligi_served_maybe_get(&reader, LIG_NAME_BYTES_MAX);
    save->match = ligi_get_varint(&reader);
    save->match_model = ligi_get_varint(&reader);
    LIG_TRY(get_labels(&reader, save));
    save->meta = ligi_get_text(&reader, LIGI_TEXT_BYTES_MAX);
    save->structure = ligi_get_text(&reader, LIGI_TEXT_BYTES_MAX);
    save->graphs = ligi_served_blob_get(&reader, &save->graph_bytes);
    LIG_TRY(get_tensors(&reader, save));
    LIG_TRY(get_parts(&reader, save));
    return ligi_served_end(&reader, "save");
}

void ligi_served_save_fini(ligi_served_save *save)
{
    free((void *)save->metrics);
    free((void *)save->tags);
    free((void *)save->tensors);
    free((void *)save->tied);
    free((void *)save->places);
    free((void *)save->orders);
    free((void *)save->parts);
    free(save->shapes);
    *save = (ligi_served_save){0};
}

/* --- the reply --- */

void ligi_served_saved_put(ligi_writer *writer, const ligi_served_saved *saved)
{
    ligi_put_varint(writer, saved->id);
    ligi_put_u8(writer, saved->has_model != 0);
    if (saved->has_model)
        ligi_served_model_put(writer, &saved->model);
    ligi_put_varint(writer, saved->part);
    ligi_served_blob_put(writer, saved->part_data, saved->part_bytes);
}

lig_status ligi_served_saved_get(const void *body, size_t bytes, ligi_served_saved *saved)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    saved->id = ligi_get_varint(&reader);
    uint8_t has_model = ligi_get_u8(&reader);
    if (has_model > 1)
        reader.failed = 1;
    saved->has_model = has_model;
    if (has_model)
        ligi_served_model_read(&reader, &saved->model);
    saved->part = ligi_get_varint(&reader);
    saved->part_data = ligi_served_blob_get(&reader, &saved->part_bytes);
    return ligi_served_end(&reader, "result of a save");
}

/* --- requests of the server --- */

void ligi_served_need_put(ligi_writer *writer, const ligi_served_need *need)
{
    ligi_put_varint(writer, need->tag);
    ligi_put_varint(writer, need->kind);
    ligi_put_varint(writer, need->count);
    for (size_t i = 0; i < need->count; i++) {
        ligi_put_varint(writer, need->stretches[i].tensor);
        ligi_put_varint(writer, need->stretches[i].offset);
        ligi_put_varint(writer, need->stretches[i].bytes);
    }
}

static int stretch_valid(const ligi_served_stretch *one, uint32_t kind)
{
    return one->bytes != 0 && one->bytes <= INT64_MAX / 2 && one->offset <= INT64_MAX / 2 &&
           (kind == LIGI_SERVED_NEED_BYTES || one->offset % LIG_BLOCK_BYTES == 0);
}

lig_status ligi_served_need_get(const void *body, size_t bytes, ligi_served_need *need)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    ligi_served_stretch *made;
    need->tag = ligi_get_varint(&reader);
    uint64_t kind = ligi_get_varint(&reader);
    size_t count = ligi_get_count(&reader, STRETCH_LEAST);
    if (reader.failed || kind > LIGI_SERVED_NEED_HASHES || count == 0 ||
        count > LIGI_SERVED_STRETCHES_MAX)
        return lig_fail(LIG_E_CORRUPT, "malformed message of a served store: need");
    need->kind = (uint32_t)kind;
    LIG_TRY(ligi_calloc(&made, count, sizeof *made, "the requests of a save"));
    need->stretches = made;
    need->count = count;
    for (size_t i = 0; i < count && !reader.failed; i++) {
        made[i].tensor = ligi_get_varint(&reader);
        made[i].offset = ligi_get_varint(&reader);
        made[i].bytes = ligi_get_varint(&reader);
        uint64_t data = kind == LIGI_SERVED_NEED_BYTES
                            ? made[i].bytes
                            : ligi_manifest_block_count(made[i].bytes) * sizeof(uint64_t);
        if (!stretch_valid(&made[i], need->kind) ||
            data > LIGI_SERVED_NEED_BYTES_MAX - need->data_bytes)
            reader.failed = 1;
        else
            need->data_bytes += data;
    }
    return ligi_served_end(&reader, "need");
}

void ligi_served_need_fini(ligi_served_need *need)
{
    free((void *)need->stretches);
    *need = (ligi_served_need){0};
}
