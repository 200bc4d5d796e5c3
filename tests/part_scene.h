/* What the tests of parts share: a model of two matrices and a scalar, cut among some writers. */
#ifndef PART_SCENE_H
#define PART_SCENE_H

#include "store_scene.h"

enum { PART_ROWS = 40, PART_COLUMNS = 1000, PART_WRITERS_MAX = 8 };

typedef struct part_scene {
    float rows[PART_ROWS][PART_COLUMNS], columns[PART_ROWS][PART_COLUMNS];
    float bias[17], scale;
} part_scene;

static const int64_t part_shape[2] = {PART_ROWS, PART_COLUMNS}, part_bias_shape[1] = {17};

static inline lig_tensor part_tensor(const char *name, const void *data, const int64_t *shape,
                                     uint32_t ndim)
{
    uint64_t bytes = 4;
    for (uint32_t d = 0; d < ndim; d++)
        bytes *= (uint64_t)shape[d];
    return (lig_tensor){.name = name,
                        .data = (void *)(uintptr_t)data,
                        .bytes = bytes,
                        .shape = shape,
                        .ndim = ndim,
                        .dtype = LIG_FLOAT32};
}

static inline void part_whole(part_scene *model, lig_tensor *tensors)
{
    tensors[0] = part_tensor("rows", model->rows, part_shape, 2);
    tensors[1] = part_tensor("columns", model->columns, part_shape, 2);
    tensors[2] = part_tensor("bias", model->bias, part_bias_shape, 1);
    tensors[3] = part_tensor("scale", &model->scale, NULL, 0);
}

/* What writer `rank` of `count` has: rows of one matrix, columns of the other, and the small ones
 * in turn. */
typedef struct part_share {
    lig_tensor tensors[4];
    lig_box boxes[4];
    int64_t shapes[2][2], starts[2][2], strides[2];
    size_t count;
} part_share;

static inline void part_share_of(part_share *share, part_scene *model, int rank, int count)
{
    *share = (part_share){.count = 2};
    for (int d = 0; d < 2; d++) {
        int64_t size = part_shape[d], low = size * rank / count, high = size * (rank + 1) / count;
        share->shapes[d][0] = d == 0 ? high - low : PART_ROWS;
        share->shapes[d][1] = d == 1 ? high - low : PART_COLUMNS;
        share->starts[d][d] = low;
    }
    share->strides[0] = PART_COLUMNS;
    share->strides[1] = 1;
    share->tensors[0] = part_tensor("rows", model->rows[share->starts[0][0]], share->shapes[0], 2);
    share->tensors[1] =
        part_tensor("columns", &model->columns[0][share->starts[1][1]], share->shapes[1], 2);
    share->tensors[1].strides = share->strides;
    for (int d = 0; d < 2; d++)
        share->boxes[d] = (lig_box){part_shape, share->starts[d], (uint64_t)d};
    if (rank == 0) {
        share->tensors[share->count] = part_tensor("bias", model->bias, part_bias_shape, 1);
        share->boxes[share->count++] = (lig_box){NULL, NULL, 2};
    }
    if (rank == count - 1) {
        share->tensors[share->count] = part_tensor("scale", &model->scale, NULL, 0);
        share->boxes[share->count++] = (lig_box){NULL, NULL, 3};
    }
}

static inline lig_status part_write(lig_store *store, const char *name, const part_share *share,
                                    const char *parent, lig_part **part)
{
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.parent = parent;
    options.boxes = share->boxes;
    options.part = part;
    return lig_store_save(store, name, share->tensors, share->count, &options);
}

static inline lig_part_data part_data(const lig_part *part)
{
    lig_part_data data = {NULL, 0};
    assert_ok(lig_part_bytes(part, &data.data, &data.bytes));
    return data;
}

/* All writers one after the other, each with a handle of its own, and a join by the first. */
static inline void part_save(const char *uri, const char *name, part_scene *model, int writers,
                             const char *parent)
{
    lig_store *stores[PART_WRITERS_MAX];
    lig_part *parts[PART_WRITERS_MAX] = {NULL};
    lig_part_data data[PART_WRITERS_MAX];
    for (int rank = 0; rank < writers; rank++) {
        part_share share;
        part_share_of(&share, model, rank, writers);
        assert_ok(lig_store_open(&stores[rank], uri));
        assert_ok(part_write(stores[rank], name, &share, parent, &parts[rank]));
        data[rank] = part_data(parts[rank]);
    }
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.parent = parent;
    assert_ok(lig_store_join(stores[0], name, data, (size_t)writers, &options));
    for (int rank = 0; rank < writers; rank++) {
        lig_part_close(parts[rank], stores[rank]);
        lig_store_close(stores[rank]);
    }
}

static inline void part_fill(part_scene *model, uint64_t seed)
{
    scene_fill(model, sizeof *model, seed);
}

/* Every way to read it gives the same bytes. */
static inline void part_compare(lig_store *store, const char *name, const part_scene *model)
{
    part_scene *found = calloc(1, sizeof *found);
    lig_tensor tensors[4], *order[] = {&tensors[0], &tensors[1], &tensors[2], &tensors[3]};
    lig_view *view;
    part_whole(found, tensors);
    assert_ok(lig_store_load(store, name, tensors, 4));
    assert_memory_equal(found, model, sizeof *found);
    assert_ok(lig_store_map(store, name, 0, &view));
    const lig_model *shown = lig_view_model(view);
    assert_int_equal(shown->tensor_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(shown->tensors[i].tensor.name, order[i]->name);
        assert_int_equal(shown->tensors[i].tensor.bytes, order[i]->bytes);
        assert_memory_equal(shown->tensors[i].tensor.shape, order[i]->shape,
                            order[i]->ndim * sizeof(int64_t));
        assert_memory_equal(shown->tensors[i].tensor.data, order[i]->data, order[i]->bytes);
    }
    lig_view_destroy(view);
    free(found);
}

static inline void part_sound(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    lig_report_destroy(report);
}

#endif
