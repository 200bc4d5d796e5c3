#include "store/format/slice.h"

#include "store_scene.h"

/* A slow, obvious slicer: element by element, by index. */
static void slice_slowly(const lig_tensor *stored, const lig_tensor *into, const lig_slice *slices)
{
    int64_t index[LIG_NDIM_MAX] = {0};
    size_t element = lig_dtype_bytes(stored->dtype);
    for (;;) {
        int64_t from = 0, to = 0, flat = 0;
        for (uint32_t d = 0; d < stored->ndim; d++) {
            from = from * stored->shape[d] + slices[d].start + index[d] * slices[d].step;
            flat = flat * into->shape[d] + index[d];
            to += into->strides ? index[d] * into->strides[d] : 0;
        }
        if (!into->strides)
            to = flat;
        memcpy((char *)into->data + to * (int64_t)element,
               (const char *)stored->data + from * (int64_t)element, element);
        uint32_t d = stored->ndim;
        while (d > 0 && ++index[d - 1] == into->shape[d - 1])
            index[--d] = 0;
        if (d == 0)
            return;
    }
}

static void walk_slice(const lig_tensor *stored, const lig_tensor *into, const lig_slice *slices)
{
    ligi_walker walker;
    ligi_run run;
    uint64_t last = 0;
    ligi_walker_init(&walker, stored, into, slices);
    while (ligi_walker_next(&walker, &run))
        for (uint64_t i = 0; i < run.count; i++) {
            uint64_t from = run.from + i * run.from_step;
            assert_true(from >= last);
            assert_true(from + run.bytes <= stored->bytes);
            last = from + run.bytes;
            memcpy((char *)into->data + run.to + (int64_t)i * run.to_step,
                   (const char *)stored->data + from, run.bytes);
        }
}

enum { ROOM = 40000 };

typedef struct example {
    lig_tensor stored, into;
    int64_t shape[5], slice_shape[5], strides[5];
    lig_slice slices[5];
} example;

static void make_example(example *made, uint64_t *seed)
{
    static const uint16_t dtypes[] = {LIG_UINT8, LIG_FLOAT16, LIG_FLOAT32, LIG_COMPLEX128};
    uint16_t dtype = dtypes[scene_random(seed) % 4];
    uint32_t ndim = (uint32_t)(scene_random(seed) % 5);
    uint64_t bytes = lig_dtype_bytes(dtype), slice_bytes = bytes;
    for (uint32_t d = 0; d < ndim; d++) {
        int64_t length = 1 + (int64_t)(scene_random(seed) % 6);
        int64_t start = (int64_t)(scene_random(seed) % (uint64_t)length);
        int64_t step = 1 + (int64_t)(scene_random(seed) % 3);
        if (scene_random(seed) % 2)
            step = -step;
        int64_t room = step > 0 ? (length - 1 - start) / step : start / -step;
        int64_t count = 1 + (int64_t)(scene_random(seed) % (uint64_t)(room + 1));
        if (scene_random(seed) % 3 == 0)
            start = 0, step = 1, count = length;
        made->shape[d] = length;
        made->slices[d] = (lig_slice){start, step, count};
        made->slice_shape[d] = count;
        bytes *= (uint64_t)length;
        slice_bytes *= (uint64_t)count;
    }
    made->stored = (lig_tensor){
        .name = "t", .bytes = bytes, .shape = made->shape, .ndim = ndim, .dtype = dtype};
    made->into = made->stored;
    made->into.shape = made->slice_shape;
    made->into.bytes = slice_bytes;
    if (scene_random(seed) % 2 == 0)
        return;
    int64_t gap = 1 + (int64_t)(scene_random(seed) % 2), at = gap;
    for (uint32_t d = ndim; d-- > 0;) {
        made->strides[d] = at;
        at *= made->slice_shape[d] + (int64_t)(scene_random(seed) % 2);
    }
    made->into.strides = made->strides;
}

static void test_against_slow(void **state)
{
    (void)state;
    static char data[ROOM], slow[ROOM * 2], fast[ROOM * 2];
    uint64_t seed = 7;
    scene_fill(data, sizeof data, 3);
    for (int i = 0; i < 5000; i++) {
        example made;
        make_example(&made, &seed);
        made.stored.data = data;
        assert_ok(ligi_slice_check(&made.stored, &made.into, made.slices));
        memset(slow, 0, sizeof slow);
        memset(fast, 0, sizeof fast);
        made.into.data = slow;
        slice_slowly(&made.stored, &made.into, made.slices);
        made.into.data = fast;
        walk_slice(&made.stored, &made.into, made.slices);
        assert_memory_equal(slow, fast, sizeof slow);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    int64_t shape[1] = {10}, part[1] = {3};
    lig_tensor stored = {.name = "t", .bytes = 10, .shape = shape, .ndim = 1, .dtype = LIG_INT8};
    lig_tensor into = {.name = "t", .bytes = 3, .shape = part, .ndim = 1, .dtype = LIG_INT8};
    const struct {
        lig_slice slice;
        lig_status status;
    } cases[] = {{{0, 1, 3}, LIG_OK},
                 {{9, -1, 3}, LIG_OK},
                 {{8, 1, 3}, LIG_E_INVALID},
                 {{1, -1, 3}, LIG_E_INVALID},
                 {{-1, 1, 3}, LIG_E_INVALID},
                 {{0, 0, 3}, LIG_E_INVALID},
                 {{0, 1, -1}, LIG_E_INVALID},
                 {{0, INT64_MAX, 3}, LIG_E_INVALID},
                 {{0, 1, 4}, LIG_E_MISMATCH},
                 {{INT64_MIN, INT64_MIN, 3}, LIG_E_INVALID},
                 {{0, 1, INT64_MAX}, LIG_E_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ligi_slice_check(&stored, &into, &cases[i].slice), cases[i].status);
    into.dtype = LIG_UINT8;
    assert_fails(ligi_slice_check(&stored, &into, NULL), LIG_E_MISMATCH);
}

/* Through a store: a tensor of several blocks, parts that begin and end anywhere. */
static void read_slices(const char *uri)
{
    enum { ROWS = 1000, COLUMNS = 777 };
    static float stored[ROWS][COLUMNS], slow[ROWS * COLUMNS], fast[ROWS * COLUMNS];
    int64_t shape[2] = {ROWS, COLUMNS};
    scene_fill(stored, sizeof stored, 11);
    lig_tensor tensor = {.name = "emb",
                         .data = stored,
                         .bytes = sizeof stored,
                         .shape = shape,
                         .ndim = 2,
                         .dtype = LIG_FLOAT32};
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    const lig_slice cases[][2] = {{{100, 1, 100}, {0, 1, COLUMNS}},
                                  {{0, 1, ROWS}, {0, 1, COLUMNS}},
                                  {{999, -1, 1000}, {0, 1, COLUMNS}},
                                  {{0, 7, 143}, {5, 3, 200}},
                                  {{999, -9, 111}, {776, -1, 777}},
                                  {{500, 1, 1}, {3, 1, 1}},
                                  {{0, 1, 0}, {0, 1, 3}},
                                  {{337, 1, 663}, {0, 1, COLUMNS}},
                                  {{0, 1, ROWS}, {776, 1, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t part[2] = {cases[i][0].count, cases[i][1].count};
        lig_read read = {.into = tensor, .slices = cases[i]};
        read.into.shape = part;
        read.into.bytes = (uint64_t)(part[0] * part[1]) * 4;
        read.into.data = slow;
        if (read.into.bytes)
            slice_slowly(&tensor, &read.into, cases[i]);
        for (uint32_t flags = 0; flags < 2; flags++) {
            memset(fast, 0, sizeof fast);
            read.into.data = fast;
            assert_ok(lig_store_read(store, "m", &read, 1, flags));
            assert_memory_equal(slow, fast, read.into.bytes);
        }
    }
    lig_store_close(store);
}

static void test_stored(void **state)
{
    scene *places = *state;
    read_slices(places->memory);
    read_slices(places->file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_slow),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test_setup_teardown(test_stored, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
