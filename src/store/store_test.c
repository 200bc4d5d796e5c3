#include "store_scene.h"

#include <pthread.h>

enum { SMALL = 100, BIG = 700000 };

static float small[SMALL], big[BIG], back[BIG], other[SMALL];
static int64_t small_length = SMALL, big_length = BIG;

static lig_tensor small_tensor(float *data)
{
    return scene_tensor("a/small", data, &small_length);
}

static lig_tensor big_tensor(float *data)
{
    return scene_tensor("b/big", data, &big_length);
}

static lig_store *opened(const char *uri)
{
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, uri));
    return store;
}

/* Runs over memory and over files. */
static void on_both(void **state, void (*body)(const char *uri))
{
    scene *places = *state;
    scene_fill(small, sizeof small, 1);
    scene_fill(big, sizeof big, 2);
    body(places->memory);
    body(places->file);
}

static void save_and_load_small(const char *uri)
{
    lig_store *store = opened(uri);
    lig_tensor tensor = small_tensor(small);
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    tensor.data = back;
    memset(back, 0, sizeof small);
    assert_ok(lig_store_load(store, "m", &tensor, 1));
    assert_memory_equal(back, small, sizeof small);
    lig_store_close(store);
}

static void test_small(void **state)
{
    on_both(state, save_and_load_small);
}

static void save_and_load_big(const char *uri)
{
    lig_store *store = opened(uri);
    lig_tensor tensors[] = {big_tensor(big), small_tensor(small)};
    assert_ok(lig_store_save(store, "m", tensors, 2, NULL));
    tensors[0].data = back;
    tensors[1].data = other;
    memset(back, 0, sizeof back);
    assert_ok(lig_store_load(store, "m", tensors, 2));
    assert_memory_equal(back, big, sizeof big);
    assert_memory_equal(other, small, sizeof small);
    lig_tensor backwards[] = {tensors[1], tensors[0]};
    memset(back, 0, sizeof back);
    assert_ok(lig_store_load(store, "m", backwards, 2));
    assert_memory_equal(back, big, sizeof big);

    lig_model *model;
    assert_ok(lig_store_model(store, "m", &model));
    assert_int_equal(model->tensor_count, 2);
    assert_string_equal(model->name, "m");
    assert_int_equal(model->bytes, sizeof big + sizeof small);
    assert_int_equal(model->own_bytes, model->bytes);
    assert_int_equal(model->tensors[0].offset % 4096, 0);
    assert_int_equal(model->tensors[1].offset % 64, 0);
    assert_int_equal(model->tensors[0].owner, model->id);
    assert_true(model->tensors[0].pack != 0);
    assert_int_equal(model->tensors[0].tied, -1);
    assert_true(model->created_ns > INT64_C(1500000000000000000));
    lig_model_destroy(model);
    lig_store_close(store);
}

static void test_big(void **state)
{
    on_both(state, save_and_load_big);
}

static void refuse(const char *uri)
{
    lig_store *store = opened(uri);
    lig_tensor tensor = big_tensor(big);
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    assert_fails(lig_store_save(store, "m", &tensor, 1, NULL), LIG_E_EXISTS);
    assert_non_null(strstr(lig_error_text(), "'m'"));
    assert_fails(lig_store_save(store, "", &tensor, 1, NULL), LIG_E_INVALID);
    assert_fails(lig_store_save(store, "\xff\xfe", &tensor, 1, NULL), LIG_E_INVALID);
    char name[5001];
    memset(name, 'x', 5000);
    name[5000] = '\0';
    assert_fails(lig_store_save(store, name, &tensor, 1, NULL), LIG_E_LIMIT);
    name[4096] = '\0';
    assert_ok(lig_store_save(store, name, &tensor, 1, NULL));
    assert_ok(lig_store_load(store, name, &tensor, 1));
    assert_ok(lig_store_save(store, "../../etc/passwd", &tensor, 1, NULL));
    assert_fails(lig_store_load(store, "n", &tensor, 1), LIG_E_NOTFOUND);
    lig_tensor wrong = tensor;
    wrong.dtype = LIG_INT32;
    assert_fails(lig_store_load(store, "m", &wrong, 1), LIG_E_MISMATCH);
    assert_non_null(strstr(lig_error_text(), "b/big"));
    lig_tensor shorter = scene_tensor("b/big", small, &small_length);
    assert_fails(lig_store_load(store, "m", &shorter, 1), LIG_E_MISMATCH);
    wrong = tensor;
    wrong.name = "c";
    assert_fails(lig_store_load(store, "m", &wrong, 1), LIG_E_MISMATCH);
    lig_save_options options = LIG_SAVE_INIT;
    options.parent = "nobody";
    assert_fails(lig_store_save(store, "o", &tensor, 1, &options), LIG_E_NOTFOUND);
    assert_fails(lig_store_retire(store, "o"), LIG_E_NOTFOUND);
    lig_store_close(store);
}

static void test_refusals(void **state)
{
    on_both(state, refuse);
}

static void replace(const char *uri)
{
    lig_store *store = opened(uri);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    lig_tensor tensor = big_tensor(big), little = small_tensor(small);
    lig_store_stats stats;
    assert_ok(lig_store_save(store, "m", &tensor, 1, &options));
    assert_ok(lig_store_alias(store, "prod", "m"));
    assert_ok(lig_store_save(store, "m", &tensor, 1, &options));
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 1);
    assert_int_equal(stats.packs, 1);
    assert_ok(lig_store_save(store, "m", &little, 1, &options));
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.packs, 0);
    little.data = other;
    memset(other, 0, sizeof other);
    assert_ok(lig_store_load(store, "prod", &little, 1));
    assert_memory_equal(other, small, sizeof small);
    assert_fails(lig_store_save(store, "prod", &little, 1, &options), LIG_E_EXISTS);
    lig_store_close(store);
}

static void test_replace(void **state)
{
    on_both(state, replace);
}

static void change(const char *uri)
{
    lig_store *store = opened(uri);
    lig_metric metrics[] = {{"loss", .5}, {"acc", .9}};
    lig_tag tags[] = {{"run", "a"}, {"kind", "x"}};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = metrics, options.metric_count = 2;
    options.tags = tags, options.tag_count = 2;
    options.meta = "{\"lr\": 0.1}";
    options.structure = "tree";
    lig_tensor tensor = small_tensor(small);
    assert_ok(lig_store_save(store, "m", &tensor, 1, &options));
    lig_save_options child = LIG_SAVE_INIT;
    child.parent = "parent by alias";
    assert_ok(lig_store_alias(store, child.parent, "m"));
    assert_ok(lig_store_save(store, "child", &tensor, 1, &child));
    assert_ok(lig_store_alias(store, child.parent, NULL));

    lig_metric later[] = {{"acc", .95}, {"f1", .1}};
    lig_tag gone[] = {{"kind", NULL}, {"best", "yes"}};
    lig_update update = LIG_UPDATE_INIT;
    update.metrics = later, update.metric_count = 2;
    update.tags = gone, update.tag_count = 2;
    update.name = "n";
    assert_ok(lig_store_alias(store, "prod", "m"));
    assert_ok(lig_store_update(store, "prod", &update));
    assert_fails(lig_store_update(store, "m", &update), LIG_E_NOTFOUND);
    update.name = "child";
    assert_fails(lig_store_update(store, "n", &update), LIG_E_EXISTS);

    lig_model *model;
    assert_ok(lig_store_model(store, "prod", &model));
    assert_string_equal(model->name, "n");
    assert_string_equal(model->meta, "{\"lr\": 0.1}");
    assert_string_equal(model->structure, "tree");
    assert_int_equal(model->metric_count, 3);
    assert_true(model->metrics[1].value == .95);
    assert_int_equal(model->tag_count, 2);
    assert_string_equal(model->tags[1].name, "best");
    uint64_t id = model->id;
    lig_model_destroy(model);
    assert_ok(lig_store_model(store, "child", &model));
    assert_int_equal(model->parent, id);
    assert_string_equal(model->parent_name, "n");
    lig_model_destroy(model);

    char *alias, *name;
    assert_ok(lig_store_alias_at(store, 0, &alias, &name));
    assert_string_equal(alias, "prod");
    assert_string_equal(name, "n");
    lig_text_destroy(alias);
    lig_text_destroy(name);
    assert_fails(lig_store_alias_at(store, 1, &alias, &name), LIG_E_NOTFOUND);
    assert_fails(lig_store_alias(store, "child", "n"), LIG_E_EXISTS);
    assert_ok(lig_store_retire(store, "n"));
    assert_fails(lig_store_model(store, "prod", &model), LIG_E_NOTFOUND);
    assert_fails(lig_store_alias(store, "prod", NULL), LIG_E_NOTFOUND);
    lig_store_close(store);
}

static void test_change(void **state)
{
    on_both(state, change);
}

static void query(const char *uri)
{
    lig_store *store = opened(uri);
    lig_tensor tensor = small_tensor(small);
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s/%d", i % 2 ? "odd" : "even", i);
        lig_metric metric = {"acc", i * 7 % 10};
        lig_tag tag = {"third", i % 3 ? "no" : "yes"};
        lig_save_options options = LIG_SAVE_INIT;
        options.metrics = &metric, options.metric_count = i != 4;
        options.tags = &tag, options.tag_count = 1;
        assert_ok(lig_store_save(store, name, &tensor, 1, &options));
    }
    lig_query asked = LIG_QUERY_INIT;
    lig_model **models;
    size_t count;
    asked.name = "even/*";
    asked.order = "-acc";
    assert_ok(lig_store_models(store, &asked, &models, &count));
    assert_int_equal(count, 5);
    assert_string_equal(models[0]->name, "even/8");
    assert_string_equal(models[4]->name, "even/4");
    assert_null(models[0]->tensors);
    lig_models_destroy(models, count);
    lig_tag third = {"third", "yes"};
    asked = (lig_query)LIG_QUERY_INIT;
    asked.tags = &third, asked.tag_count = 1;
    asked.limit = 3;
    assert_ok(lig_store_models(store, &asked, &models, &count));
    assert_int_equal(count, 3);
    assert_string_equal(models[0]->name, "even/0");
    assert_string_equal(models[1]->name, "odd/3");
    lig_models_destroy(models, count);
    assert_ok(lig_store_models(store, NULL, &models, &count));
    assert_int_equal(count, 10);
    lig_models_destroy(models, count);
    lig_store_close(store);
}

static void test_query(void **state)
{
    on_both(state, query);
}

static void tie(const char *uri)
{
    lig_store *store = opened(uri);
    int64_t square[2] = {300, 300}, across[2] = {1, 300};
    lig_tensor tensors[4] = {big_tensor(big), big_tensor(big), big_tensor(big), big_tensor(big)};
    tensors[1].name = "again";
    for (int i = 2; i < 4; i++) {
        tensors[i].name = i == 2 ? "square" : "turned";
        tensors[i].shape = square;
        tensors[i].ndim = 2;
        tensors[i].bytes = 300 * 300 * 4;
    }
    tensors[3].strides = across;
    assert_ok(lig_store_save(store, "m", tensors, 4, NULL));
    lig_model *model;
    assert_ok(lig_store_model(store, "m", &model));
    assert_int_equal(model->tensors[1].tied, 0);
    assert_int_equal(model->tensors[2].tied, -1);
    assert_int_equal(model->tensors[3].tied, -1);
    assert_int_equal(model->bytes, sizeof big + 2 * 300 * 300 * 4);
    assert_memory_equal(model->tensors[0].fingerprint, model->tensors[1].fingerprint, 16);
    assert_memory_not_equal(model->tensors[2].fingerprint, model->tensors[3].fingerprint, 16);
    lig_model_destroy(model);

    static float turned[300][300];
    lig_tensor flat = tensors[3];
    flat.strides = NULL;
    flat.data = turned;
    assert_ok(lig_store_load(store, "m", &flat, 1));
    for (int i = 0; i < 300; i++)
        for (int j = 0; j < 300; j++)
            assert_true(memcmp(&turned[i][j], &big[j * 300 + i], 4) == 0);
    flat.strides = across; /* turned twice */
    assert_ok(lig_store_load(store, "m", &flat, 1));
    assert_memory_equal(turned, big, sizeof turned);
    lig_store_close(store);
}

static void test_ties_and_strides(void **state)
{
    on_both(state, tie);
}

static void view(const char *uri)
{
    lig_store *store = opened(uri);
    int64_t none = 0;
    lig_tensor tensors[] = {big_tensor(big), small_tensor(small), scene_tensor("e", NULL, &none)};
    assert_ok(lig_store_save(store, "m", tensors, 3, NULL));
    assert_ok(lig_store_save(store, "inline", tensors + 1, 1, NULL));
    lig_view *whole, *inlined, *mine;
    assert_ok(lig_store_map(store, "m", 0, &whole));
    assert_ok(lig_store_map(store, "m", LIG_VIEW_PRIVATE | LIG_READ_UNVERIFIED, &mine));
    assert_ok(lig_store_map(store, "inline", 0, &inlined));
    assert_ok(lig_store_retire(store, "m"));
    assert_ok(lig_store_retire(store, "inline"));
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    lig_store_close(store);
    const lig_model *model = lig_view_model(whole);
    assert_memory_equal(model->tensors[0].tensor.data, big, sizeof big);
    assert_memory_equal(model->tensors[1].tensor.data, small, sizeof small);
    ((float *)lig_view_model(mine)->tensors[0].tensor.data)[0] = 1;
    assert_memory_equal(model->tensors[0].tensor.data, big, sizeof big);
    const lig_tensor *little = &lig_view_model(inlined)->tensors[0].tensor;
    assert_memory_equal(little->data, small, sizeof small);
    assert_int_equal((uintptr_t)little->data % 64, 0);
    lig_view_destroy(whole);
    lig_view_destroy(mine);
    lig_view_destroy(inlined);
}

static void test_view(void **state)
{
    on_both(state, view);
}

static void check_sound(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    lig_report_destroy(report);
}

typedef struct slow_copy {
    lig_store *from, *to;
    lig_status status;
} slow_copy;

static void *copy_newer(void *context)
{
    slow_copy *self = context;
    self->status = lig_store_copy(self->from, "m", self->to, NULL, LIG_COPY_NEWER);
    return NULL;
}

/* A copy of an older model never replaces one that is saved meanwhile. */
static void test_copy_during_save(void **state)
{
    scene *places = *state;
    slow_copy copy = {opened(places->memory), opened(places->file), LIG_OK};
    lig_tensor old = big_tensor(big), new = small_tensor(small);
    lig_store *to = opened(places->file);
    pthread_t thread;
    assert_ok(lig_store_save(copy.from, "m", &old, 1, NULL));
    for (int round = 0; round < 50; round++) {
        assert_int_equal(pthread_create(&thread, NULL, copy_newer, &copy), 0);
        lig_save_options options = LIG_SAVE_INIT;
        options.flags = LIG_SAVE_REPLACE;
        assert_ok(lig_store_save(to, "m", &new, 1, &options));
        pthread_join(thread, NULL);
        assert_true(copy.status == LIG_OK || copy.status == LIG_E_EXISTS);
        assert_ok(lig_store_load(to, "m", &new, 1));
        assert_ok(lig_store_retire(to, "m"));
    }
    lig_store_close(copy.from);
    lig_store_close(copy.to);
    lig_store_close(to);
}

static void test_copy(void **state)
{
    scene *places = *state;
    lig_store *from = opened(places->memory), *to = opened(places->file);
    int64_t *shapes = &big_length;
    lig_metric metric = {"acc", 1};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = &metric, options.metric_count = 1;
    options.structure = "s";
    lig_tensor tensors[] = {big_tensor(big), scene_tensor("tied", big, shapes),
                            small_tensor(small)};
    assert_ok(lig_store_save(from, "m", tensors, 3, &options));
    assert_ok(lig_store_save(from, "i", tensors + 2, 1, NULL));
    assert_ok(lig_store_copy(from, "m", to, NULL, 0));
    assert_ok(lig_store_copy(from, "i", to, "j", 0));
    assert_fails(lig_store_copy(from, "m", to, NULL, 0), LIG_E_EXISTS);
    assert_ok(lig_store_copy(from, "m", to, NULL, LIG_SAVE_REPLACE));
    lig_model *model;
    assert_ok(lig_store_model(to, "m", &model));
    assert_int_equal(model->tensors[1].tied, 0);
    assert_string_equal(model->structure, "s");
    assert_int_equal(model->metric_count, 1);
    lig_model_destroy(model);
    tensors[0].data = back;
    memset(back, 0, sizeof back);
    assert_ok(lig_store_load(to, "m", tensors, 1));
    assert_memory_equal(back, big, sizeof big);
    check_sound(from);
    check_sound(to);
    lig_store_close(from);
    lig_store_close(to);
}

static void modes(const char *uri)
{
    char text[160];
    lig_store *store, *second;
    snprintf(text, sizeof text, "%s?mode=r", uri);
    assert_fails(lig_store_open(&store, text), LIG_E_NOTFOUND);
    snprintf(text, sizeof text, "%s?mode=w", uri);
    assert_ok(lig_store_open(&store, text));
    assert_string_equal(lig_store_uri(store), uri);
    assert_fails(lig_store_open(&second, text), LIG_E_EXISTS);
    lig_tensor tensor = small_tensor(small);
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    snprintf(text, sizeof text, "%s?mode=r", uri);
    assert_ok(lig_store_open(&second, text));
    assert_ok(lig_store_load(second, "m", &tensor, 1));
    assert_fails(lig_store_save(second, "n", &tensor, 1, NULL), LIG_E_DENIED);
    assert_fails(lig_store_retire(second, "m"), LIG_E_DENIED);
    check_sound(second);
    lig_store_close(second);
    snprintf(text, sizeof text, "%s?mode=x", uri);
    assert_fails(lig_store_open(&second, text), LIG_E_INVALID);
    lig_store_close(store);
    assert_fails(lig_store_open(&second, "null:"), LIG_E_UNSUPPORTED);
    assert_fails(lig_store_open(&second, "nothing:"), LIG_E_NOTFOUND);
    lig_store_close(NULL);
}

static void test_modes(void **state)
{
    scene_local_only();
    on_both(state, modes);
}

static void many(const char *uri)
{
    enum { COUNT = 100000 };
    lig_store *store = opened(uri);
    static char names[COUNT][16];
    static int32_t values[COUNT], read[COUNT];
    lig_tensor *tensors = calloc(COUNT, sizeof *tensors);
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        values[i] = i * 3;
        tensors[i] =
            (lig_tensor){.name = names[i], .data = &values[i], .bytes = 4, .dtype = LIG_INT32};
    }
    assert_ok(lig_store_save(store, "many", tensors, COUNT, NULL));
    for (int i = 0; i < COUNT; i++)
        tensors[i].data = &read[i];
    assert_ok(lig_store_load(store, "many", tensors, COUNT));
    assert_memory_equal(values, read, sizeof read);
    free(tensors);
    check_sound(store);
    lig_store_close(store);
}

static void test_many(void **state)
{
    on_both(state, many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_small, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_big, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_replace, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_change, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_query, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_ties_and_strides, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_view, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_copy, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_copy_during_save, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_modes, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_many, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
