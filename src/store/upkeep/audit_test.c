#include "store/upkeep/audit.h"

#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store_scene.h"

enum { LENGTH = 50000 };

static float values[LENGTH];
static int64_t length = LENGTH;

static lig_store *filled(const char *uri)
{
    lig_store *store = NULL;
    lig_tensor tensor = scene_tensor("t", values, &length);
    int64_t little = 10;
    lig_tensor small = scene_tensor("s", values, &little);
    scene_fill(values, sizeof values, 1);
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_save(store, "packed", &tensor, 1, NULL));
    assert_ok(lig_store_save(store, "inline", &small, 1, NULL));
    assert_ok(lig_store_alias(store, "prod", "packed"));
    return store;
}

static size_t problems(lig_store *store, uint32_t flags, uint64_t *repaired)
{
    lig_report *report;
    assert_ok(lig_store_check(store, flags, &report));
    size_t count = report->problem_count;
    *repaired = report->repaired;
    lig_report_destroy(report);
    return count;
}

/* Damage by hand, each kind with what it takes. */
static uint64_t pack_of(lig_store *store)
{
    lig_model *model;
    assert_ok(lig_store_model(store, "packed", &model));
    uint64_t pack = model->tensors[0].pack;
    lig_model_destroy(model);
    return pack;
}

static lig_status wrong_count(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    uint64_t pack = *(uint64_t *)context;
    ligi_pack_record record = {5, 6, 7};
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, pack);
    ligi_pack_record_put(&change->value, pack, &record, view->store->secret);
    return ligi_change_put(change, &key);
}

static lig_status wrong_tensors(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    uint64_t pack = *(uint64_t *)context;
    ligi_pack_record record;
    LIG_TRY(ligi_catalog_view_pack(view, pack, &record));
    record.tensors++;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, pack);
    ligi_pack_record_put(&change->value, pack, &record, view->store->secret);
    return ligi_change_put(change, &key);
}

static lig_status lost_pack_record(void *context, const ligi_catalog_view *view,
                                   ligi_change *change)
{
    (void)view;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, *(uint64_t *)context);
    return ligi_change_erase(change, &key);
}

static lig_status lost_name(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_NAME, view->store->secret, "packed");
    return ligi_change_erase(change, &key);
}

static lig_status false_name(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    const void *secret = view->store->secret;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_NAME, secret, "nobody");
    ligi_catalog_name_put(&change->value, &key, 999, secret);
    return ligi_change_put(change, &key);
}

static lig_status false_alias(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    const void *secret = view->store->secret;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, secret, "lost");
    ligi_alias_put(&change->value, &key, "lost", 999, secret);
    return ligi_change_put(change, &key);
}

static lig_status damaged_name(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_NAME, view->store->secret, "inline");
    change->value.bytes = 0;
    ligi_put_bytes(&change->value, "\x01nonsense that is long enough", 28);
    return ligi_change_put(change, &key);
}

static lig_status lost_inline(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context, (void)view;
    ligi_inline inlined = {(const uint8_t *)"x", (const uint8_t *)"y", 1, 1};
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, 999);
    ligi_inline_put(&change->value, 999, &inlined, view->store->secret);
    return ligi_change_put(change, &key);
}

static void damage_and_mend(const char *uri, ligi_edit damage)
{
    lig_store *store = filled(uri);
    uint64_t pack = pack_of(store), repaired;
    assert_int_equal(problems(store, 0, &repaired), 0);
    assert_ok(ligi_change_commit(store, damage, &pack, NULL));
    assert_true(problems(store, 0, &repaired) > 0);
    assert_int_equal(repaired, 0);
    assert_true(problems(store, LIG_CHECK_REPAIR, &repaired) > 0);
    assert_true(repaired > 0);
    assert_int_equal(problems(store, 0, &repaired), 0);
    lig_tensor tensor = scene_tensor("t", values, &length);
    assert_ok(lig_store_load(store, "prod", &tensor, 1));
    assert_ok(lig_store_load(store, "packed", &tensor, 1));
    int64_t little = 10;
    tensor = scene_tensor("s", values, &little);
    assert_ok(lig_store_load(store, "inline", &tensor, 1));
    lig_store_stats stats;
    assert_ok(lig_store_retire(store, "packed"));
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.packs, 0);
    lig_store_close(store);
}

static void test_mend(void **state)
{
    (void)state;
    const ligi_edit kinds[] = {wrong_count, wrong_tensors, lost_pack_record, lost_name,
                               false_name,  false_alias,   damaged_name,     lost_inline};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        damage_and_mend("mem:", kinds[i]);
}

/* A record that cannot be read is told, and nothing that hangs on it is thrown away. */
static lig_status damaged_model(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    uint64_t id;
    LIG_TRY(ligi_catalog_view_name(view, "packed", &id));
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    change->value.bytes = 0;
    ligi_put_bytes(&change->value, "\x01nonsense that is long enough", 28);
    return ligi_change_put(change, &key);
}

static void test_damaged_model(void **state)
{
    (void)state;
    lig_store *store = filled("mem:");
    uint64_t repaired;
    assert_ok(ligi_change_commit(store, damaged_model, NULL, NULL));
    assert_int_equal(problems(store, LIG_CHECK_REPAIR, &repaired), 1);
    assert_int_equal(repaired, 0);
    lig_model *model;
    assert_fails(lig_store_model(store, "packed", &model), LIG_E_CORRUPT);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats)); /* the others are not hidden by it */
    lig_model **models;
    size_t count;
    assert_ok(lig_store_models(store, NULL, &models, &count));
    assert_int_equal(count + 1, stats.models);
    lig_models_destroy(models, count);
    lig_store_close(store);
}

static lig_status newer_header(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    ligi_header header;
    LIG_TRY(ligi_catalog_view_header(view, &header));
    ligi_header_put(&change->value, &header);
    change->value.data[0] = 9;
    ligi_catalog_key key = ligi_catalog_key_header();
    return ligi_change_put(change, &key);
}

static void test_newer(void **state)
{
    scene *places = *state;
    lig_store *store = filled(places->file), *again;
    assert_ok(ligi_change_commit(store, newer_header, NULL, NULL));
    assert_fails(lig_store_open(&again, places->file), LIG_E_UNSUPPORTED);
    assert_non_null(strstr(lig_error_text(), "version 9"));
    lig_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mend),
        cmocka_unit_test(test_damaged_model),
        cmocka_unit_test_setup_teardown(test_newer, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
