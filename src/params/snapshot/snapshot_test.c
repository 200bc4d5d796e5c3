/* Saving and loading on one node: every kind of table is restored bit for bit, and is stored as an
 * ordinary model. */
#include "backend/registry.h"
#include "store_scene.h"

#include <ligament/params.h>

enum { MANY = 5000 };

typedef struct job {
    lig_params *node;
    lig_params_worker *worker;
} job;

static job job_open(const lig_params_table *tables, uint32_t count, uint32_t dtype, uint32_t flags)
{
    job made = {0};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = tables;
    options.table_count = count;
    options.dtype = dtype;
    options.flags = flags;
    assert_ok(lig_params_open(&made.node, &options));
    assert_ok(lig_params_worker_open(&made.worker, made.node, 0));
    return made;
}

static void job_close(job *made)
{
    lig_params_worker_close(made->worker);
    lig_params_close(made->node);
}

static void *pulled(job *made, const int64_t *keys, size_t count, uint32_t dtype, size_t *bytes)
{
    uint64_t elements;
    int64_t ticket;
    assert_ok(lig_params_lengths(made->node, keys, count, &elements));
    *bytes = elements * lig_dtype_bytes(dtype);
    void *values = calloc(1, *bytes + 1);
    assert_ok(lig_params_pull(made->worker, keys, count, values, elements, &ticket));
    assert_ok(lig_params_wait(made->worker, ticket, LIG_FOREVER));
    return values;
}

static void push(job *made, const int64_t *keys, size_t count, uint32_t dtype, uint64_t seed)
{
    uint64_t elements;
    int64_t ticket;
    assert_ok(lig_params_lengths(made->node, keys, count, &elements));
    uint8_t *values = calloc(elements, 8);
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t x = scene_random(&seed);
        float small = (float)(x % 2001) / 1000 - 1;
        double wide = small;
        int64_t whole = (int64_t)(x % 1000);
        uint32_t bits;
        memcpy(&bits, &small, 4);
        bits >>= 16;
        if (dtype == LIG_FLOAT32)
            memcpy(values + i * 4, &small, 4);
        else if (dtype == LIG_FLOAT64)
            memcpy(values + i * 8, &wide, 8);
        else if (dtype == LIG_BFLOAT16)
            memcpy(values + i * 2, &bits, 2);
        else
            memcpy(values + i * lig_dtype_bytes(dtype), &whole, lig_dtype_bytes(dtype));
    }
    assert_ok(lig_params_push(made->worker, keys, count, values, elements, &ticket));
    assert_ok(lig_params_wait(made->worker, ticket, LIG_FOREVER));
    free(values);
}

/* Both continue identically: the optimizer state was restored as well. */
static void check_same(job *a, job *b, const int64_t *keys, size_t count, uint32_t dtype)
{
    size_t bytes, again;
    for (int round = 0; round < 3; round++) {
        void *left = pulled(a, keys, count, dtype, &bytes);
        void *right = pulled(b, keys, count, dtype, &again);
        assert_int_equal(bytes, again);
        assert_memory_equal(left, right, bytes);
        free(left);
        free(right);
        push(a, keys, count, dtype, 77 + (uint64_t)round);
        push(b, keys, count, dtype, 77 + (uint64_t)round);
    }
}

static void fill_keys(int64_t *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        keys[i] = (int64_t)i;
}

static uint32_t optimizers_of(uint32_t dtype)
{
    return dtype == LIG_INT32 || dtype == LIG_INT64 ? 1 : 5;
}

/* Two tables of every dtype and optimizer, one with rows of unequal length. */
static void test_dense(void **state)
{
    scene *places = *state;
    const uint32_t dtypes[] = {LIG_FLOAT32, LIG_FLOAT64, LIG_BFLOAT16, LIG_INT32, LIG_INT64};
    uint32_t lengths[300];
    int64_t keys[1300];
    fill_keys(keys, 1300);
    for (size_t i = 0; i < 300; i++)
        lengths[i] = (uint32_t)(1 + i % 7);
    for (size_t d = 0; d < 5; d++)
        for (uint32_t kind = 0; kind < optimizers_of(dtypes[d]); kind++) {
            lig_params_optimizer optimizer = {
                .kind = kind, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .999};
            lig_params_table tables[2] = {
                {.name = "even", .key_count = 1000, .length = 5, .optimizer = optimizer},
                {.name = "odd", .key_count = 300, .lengths = lengths, .optimizer = optimizer}};
            job first = job_open(tables, 2, dtypes[d], 0);
            push(&first, keys, 1300, dtypes[d], 1);
            push(&first, keys + 500, 700, dtypes[d], 2);
            assert_ok(lig_params_save(first.node, places->file, "m", LIG_FOREVER));
            job second = job_open(tables, 2, dtypes[d], 0);
            push(&second, keys, 100, dtypes[d], 3);
            assert_ok(lig_params_load(second.node, places->file, "m", LIG_FOREVER));
            check_same(&first, &second, keys, 1300, dtypes[d]);
            job_close(&first);
            job_close(&second);
        }
}

static void test_hashed(void **state)
{
    scene *places = *state;
    lig_params_optimizer adagrad = {.kind = LIG_PARAMS_ADAGRAD, .lr = .1, .eps = 1e-8};
    lig_params_init init = {.kind = LIG_PARAMS_UNIFORM, .a = -1, .b = 1, .seed = 4};
    lig_params_table tables[3] = {
        {.name = "users", .key_count = 20000, .length = 40, .optimizer = adagrad, .init = init},
        {.name = "none", .key_count = 10, .length = 2},
        {.name = "items", .key_count = 900, .length = 3, .init = init}};
    int64_t keys[MANY + 800], items, extra = 123456789;
    job first = job_open(tables, 3, LIG_FLOAT32, LIG_PARAMS_HASHED);
    assert_ok(lig_params_offset(first.node, "items", &items));
    for (int i = 0; i < MANY; i++)
        keys[i] = (int64_t)i * i * 7919;
    for (int i = 0; i < 800; i++)
        keys[MANY + i] = items + (int64_t)i * 1000003;
    push(&first, keys, MANY + 800, LIG_FLOAT32, 1);
    assert_ok(lig_params_save(first.node, places->file, "m", LIG_FOREVER));
    tables[0].key_count = 6000; /* other tensors of the same save */
    job second = job_open(tables, 3, LIG_FLOAT32, LIG_PARAMS_HASHED);
    push(&second, keys, 10, LIG_FLOAT32, 9);
    push(&second, &extra, 1, LIG_FLOAT32, 9);
    assert_ok(lig_params_load(second.node, places->file, "m", LIG_FOREVER));
    check_same(&first, &second, &extra, 1, LIG_FLOAT32); /* as if it were untouched */
    check_same(&first, &second, keys, MANY + 800, LIG_FLOAT32);
    job_close(&second);
    tables[0].key_count = 100;
    second = job_open(tables, 3, LIG_FLOAT32, LIG_PARAMS_HASHED);
    assert_fails(lig_params_load(second.node, places->file, "m", LIG_FOREVER), LIG_E_MISMATCH);
    job_close(&second);
    job_close(&first);
}

/* One hot block of many: the other blocks of the table are not written again. */
static void test_unchanged(void **state)
{
    scene *places = *state;
    enum { KEYS = 60000, LENGTH = 100 };
    lig_params_optimizer adagrad = {.kind = LIG_PARAMS_ADAGRAD, .lr = .1, .eps = 1e-8};
    lig_params_init init = {.kind = LIG_PARAMS_NORMAL, .b = 1, .seed = 4};
    lig_params_table table = {
        .key_count = KEYS, .length = LENGTH, .optimizer = adagrad, .init = init};
    job one = job_open(&table, 1, LIG_FLOAT32, 0);
    int64_t keys[KEYS];
    fill_keys(keys, KEYS);
    push(&one, keys, KEYS, LIG_FLOAT32, 1);
    assert_ok(lig_params_save(one.node, places->file, "epoch-1", LIG_FOREVER));
    push(&one, keys, 10, LIG_FLOAT32, 2);
    assert_ok(lig_params_save(one.node, places->file, "epoch-2", LIG_FOREVER));
    lig_store *store;
    lig_model *model;
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_model(store, "epoch-1", &model));
    assert_int_equal(model->tensor_count, 2);
    assert_int_equal(model->bytes, KEYS * LENGTH * 4 * 2);
    assert_int_equal(model->own_bytes, model->bytes);
    lig_model_destroy(model);
    assert_ok(lig_store_model(store, "epoch-2", &model));
    assert_true(model->own_bytes < model->bytes / 8);
    assert_true(model->own_bytes > 0);
    lig_model_destroy(model);
    lig_store_close(store);
    job_close(&one);
}

/* Inserted keys shift all later ones; unchanged blocks are still recognised. */
static void test_unchanged_hashed(void **state)
{
    scene *places = *state;
    lig_params_init init = {.kind = LIG_PARAMS_NORMAL, .b = 1, .seed = 4};
    lig_params_table table = {.key_count = 20000, .length = 200, .init = init};
    job one = job_open(&table, 1, LIG_FLOAT32, LIG_PARAMS_HASHED);
    int64_t keys[15000];
    for (int64_t i = 0; i < 15000; i++)
        keys[i] = i * 1000003;
    push(&one, keys, 14990, LIG_FLOAT32, 1);
    assert_ok(lig_params_save(one.node, places->file, "epoch-1", LIG_FOREVER));
    push(&one, keys + 14999, 1, LIG_FLOAT32, 2);
    assert_ok(lig_params_save(one.node, places->file, "epoch-2", LIG_FOREVER));
    lig_store *store;
    lig_model *model;
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_model(store, "epoch-2", &model));
    assert_true(model->own_bytes < model->bytes / 8);
    lig_model_destroy(model);
    lig_store_close(store);
    job_close(&one);
}

static void test_ordinary_model(void **state)
{
    scene *places = *state;
    lig_params_table table = {.key_count = 50, .length = 4};
    job one = job_open(&table, 1, LIG_FLOAT32, 0);
    int64_t keys[50], shape[2] = {50, 4};
    float loaded[200];
    size_t bytes;
    fill_keys(keys, 50);
    push(&one, keys, 50, LIG_FLOAT32, 1);
    assert_ok(lig_params_save(one.node, places->file, "m", LIG_FOREVER));
    push(&one, keys, 50, LIG_FLOAT32, 2);
    assert_ok(lig_params_save(one.node, places->file, "m", LIG_FOREVER)); /* is replaced */
    lig_store *store;
    lig_tensor tensor = {.name = "values",
                         .data = loaded,
                         .bytes = sizeof loaded,
                         .shape = shape,
                         .ndim = 2,
                         .dtype = LIG_FLOAT32};
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_load(store, "m", &tensor, 1));
    void *values = pulled(&one, keys, 50, LIG_FLOAT32, &bytes);
    assert_memory_equal(values, loaded, sizeof loaded);
    free(values);
    /* Conversely, any model with such tensors can be loaded. */
    scene_fill(loaded, sizeof loaded, 3);
    assert_ok(lig_store_save(store, "made", &tensor, 1, NULL));
    lig_store_close(store);
    assert_ok(lig_params_load(one.node, places->file, "made", LIG_FOREVER));
    values = pulled(&one, keys, 50, LIG_FLOAT32, &bytes);
    assert_memory_equal(values, loaded, sizeof loaded);
    free(values);
    job_close(&one);
}

typedef struct other {
    uint64_t keys;
    uint32_t length, dtype, optimizer, flags;
    const char *name, *says;
} other;

static void test_mismatch(void **state)
{
    scene *places = *state;
    const other others[] = {
        {51, 4, LIG_FLOAT32, 2, 0, "t", "[50, 4], but the table has float32 [51, 4]"},
        {50, 5, LIG_FLOAT32, 2, 0, "t", "[50, 4]"},
        {50, 4, LIG_FLOAT64, 2, 0, "t", "float64"},
        {50, 4, LIG_FLOAT32, 0, 0, "t", "'t.sum' of model 'm' belongs to no table"},
        {50, 4, LIG_FLOAT32, 4, 0, "t", "'t.mean'"},
        {50, 4, LIG_FLOAT32, 3, 0, "t", "[50, 4], but the table has float32 [50]"},
        {50, 4, LIG_FLOAT32, 2, 0, "u", "no tensor 'u'"},
        {50, 4, LIG_FLOAT32, 2, LIG_PARAMS_HASHED, "t", "hashed"},
    };
    lig_params_optimizer adagrad = {
        .kind = LIG_PARAMS_ADAGRAD, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .9};
    lig_params_table table = {.name = "t", .key_count = 50, .length = 4, .optimizer = adagrad};
    job one = job_open(&table, 1, LIG_FLOAT32, 0);
    assert_ok(lig_params_save(one.node, places->file, "m", LIG_FOREVER));
    job_close(&one);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        lig_params_table wrong = {.name = others[i].name,
                                  .key_count = others[i].keys,
                                  .length = others[i].length,
                                  .optimizer = adagrad};
        wrong.optimizer.kind = others[i].optimizer;
        job two = job_open(&wrong, 1, others[i].dtype, others[i].flags);
        assert_fails(lig_params_load(two.node, places->file, "m", LIG_FOREVER), LIG_E_MISMATCH);
        if (strstr(lig_error_text(), others[i].says) == NULL)
            fail_msg("'%s' is not in '%s'", others[i].says, lig_error_text());
        job_close(&two);
    }
}

static void test_lengths_mismatch(void **state)
{
    scene *places = *state;
    uint32_t lengths[3] = {1, 2, 3}, same_sum[3] = {2, 1, 3};
    lig_params_table table = {.key_count = 3, .lengths = lengths};
    job one = job_open(&table, 1, LIG_INT64, 0);
    assert_ok(lig_params_save(one.node, places->file, "m", LIG_FOREVER));
    job_close(&one);
    table.lengths = same_sum;
    one = job_open(&table, 1, LIG_INT64, 0);
    assert_fails(lig_params_load(one.node, places->file, "m", LIG_FOREVER), LIG_E_MISMATCH);
    job_close(&one);
}

static void test_refused(void **state)
{
    scene *places = *state;
    char missing[200];
    lig_params_table tables[2] = {{.name = "a", .key_count = 3, .length = 1},
                                  {.name = "a.sum", .key_count = 3, .length = 1}};
    snprintf(missing, sizeof missing, "%s/nowhere", places->folder);
    job one = job_open(tables, 2, LIG_FLOAT32, 0);
    assert_fails(lig_params_load(one.node, missing, "m", LIG_FOREVER), LIG_E_NOTFOUND);
    assert_int_equal(access(missing, F_OK), -1);
    assert_ok(lig_params_save(one.node, places->file, "m", LIG_FOREVER));
    assert_fails(lig_params_load(one.node, places->file, "n", LIG_FOREVER), LIG_E_NOTFOUND);
    assert_fails(lig_params_save(one.node, places->file, "", LIG_FOREVER), LIG_E_INVALID);
    assert_fails(lig_params_save(one.node, "nosuch:x", "m", LIG_FOREVER), LIG_E_NOTFOUND);
    job_close(&one);
    tables[0].optimizer.kind = LIG_PARAMS_ADAGRAD;
    tables[0].optimizer.lr = 1;
    tables[0].optimizer.eps = 1e-8;
    one = job_open(tables, 2, LIG_FLOAT32, 0);
    assert_fails(lig_params_save(one.node, places->file, "m", LIG_FOREVER), LIG_E_UNSUPPORTED);
    job_close(&one);
}

/* --- a remote store --- */

static lig_volume_ops far_volume;
static lig_backend_ops far;

static lig_status no_open(void **self, const char *config)
{
    (void)self, (void)config;
    return lig_fail(LIG_E_PEER, "the store does not answer");
}

static lig_status no_put(void *pack, const lig_piece *piece)
{
    (void)pack, (void)piece;
    return lig_fail(LIG_E_PEER, "the store has gone");
}

/* A peer of the store is lost, but none of the nodes. */
static void test_store_is_lost(void **state)
{
    (void)state;
    lig_params_table table = {.key_count = MANY, .length = 200}; /* a pack */
    job one = job_open(&table, 1, LIG_FLOAT32, 0);
    int64_t keys[MANY];
    fill_keys(keys, MANY);
    push(&one, keys, MANY, LIG_FLOAT32, 1);
    far = *lig_backend_find("mem");
    far_volume = *far.volume;
    far_volume.pack_put = no_put;
    far.volume = &far_volume;
    assert_ok(ligi_backend_register("far", &far));
    assert_fails(lig_params_save(one.node, "far:", "m", LIG_FOREVER), LIG_E_PEER);
    assert_string_equal(lig_error_text(), "the store has gone");
    far.open = no_open;
    assert_fails(lig_params_save(one.node, "far:", "m", LIG_FOREVER), LIG_E_PEER);
    assert_fails(lig_params_load(one.node, "far:", "m", LIG_FOREVER), LIG_E_PEER);
    assert_string_equal(lig_error_text(), "the store does not answer");
    job_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dense, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_hashed, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged_hashed, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_ordinary_model, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_mismatch, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_lengths_mismatch, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_refused, scene_setup, scene_teardown),
        cmocka_unit_test(test_store_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
