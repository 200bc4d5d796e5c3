#include "store/upkeep/index_check.h"

#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/model_graphs.h"
#include "store/catalog/search_index.h"
#include "store_scene.h"

enum { LENGTH = 30000, MODELS = 3 };

static float values[LENGTH];
static int64_t length = LENGTH;

static const lig_layer layers[2] = {{"first", "A", 1}, {"second", "B", 1}};
static const lig_input from_first = {0, 0};
static const lig_call calls[2] = {{0, 0, NULL}, {1, 1, &from_first}};
static const lig_graph graph = {"test 1", layers, calls, 2, 2};

/* Three models with graphs, of which one has other bytes in its second layer; one without. */
static lig_store *filled(void)
{
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, "mem:"));
    const lig_metric metric = {"acc", .5};
    const lig_tag tag = {"run", "a"};
    for (int i = 0; i < MODELS; i++) {
        lig_save_options options = LIG_SAVE_INIT;
        char name[8];
        int64_t second = i == 1 ? 500 : 700;
        lig_tensor tensors[2] = {scene_tensor("first.w", values, &length),
                                 scene_tensor("second.w", values, &second)};
        options.graphs = &graph, options.graph_count = 1;
        options.metrics = &metric, options.metric_count = 1;
        options.tags = &tag, options.tag_count = 1;
        snprintf(name, sizeof name, "m%d", i);
        scene_fill(values, sizeof values, (uint64_t)i);
        assert_ok(lig_store_save(store, name, tensors, 2, &options));
    }
    lig_tensor alone = scene_tensor("t", values, &length);
    assert_ok(lig_store_save(store, "plain", &alone, 1, NULL));
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

static void find_all(lig_store *store)
{
    lig_find_options options = LIG_FIND_INIT;
    lig_match **matches;
    size_t count;
    options.limit = 10;
    assert_ok(lig_store_find(store, &graph, &options, &matches, &count));
    assert_int_equal(count, MODELS);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(matches[i]->layer_count, 2);
    lig_matches_destroy(matches, count);
}

/* --- damage by hand --- */

/* Number `number` of a table. */
static lig_status item_of(const ligi_catalog_view *view, enum ligi_table table, int number,
                          lig_catalog_item *item, ligi_catalog_key *key)
{
    ligi_walk walk = {0};
    lig_status status = LIG_OK;
    for (int i = 0; i <= number; i++)
        assert_true(ligi_catalog_view_next(view, table, &walk, item, &status));
    key->size = item->key_bytes;
    memcpy(key->bytes, item->key, item->key_bytes);
    return status;
}

static lig_status erase_one(const ligi_catalog_view *view, ligi_change *change,
                            enum ligi_table table)
{
    lig_catalog_item item;
    ligi_catalog_key key;
    LIG_TRY(item_of(view, table, 0, &item, &key));
    return ligi_change_erase(change, &key);
}

static lig_status lost_posting(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    return erase_one(view, change, LIGI_TABLE_POSTING);
}

static lig_status lost_column(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    return erase_one(view, change, LIGI_TABLE_COLUMN);
}

static lig_status lost_graph(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    return erase_one(view, change, LIGI_TABLE_GRAPH);
}

static lig_status lost_fingerprint(void *context, const ligi_catalog_view *view,
                                   ligi_change *change)
{
    (void)context;
    return erase_one(view, change, LIGI_TABLE_FINGERPRINT);
}

/* A posting that has one model too many. */
static lig_status wide_posting(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    const void *secret = view->store->secret;
    lig_catalog_item item;
    ligi_catalog_key key;
    ligi_posting posting = {0};
    uint8_t data[LIGI_BITMAP_BYTES];
    for (int i = 0;; i++) {
        LIG_TRY(item_of(view, LIGI_TABLE_POSTING, i, &item, &key));
        LIG_TRY(ligi_posting_get(&item, secret, &posting));
        if (ligi_bitmap_count(&posting.set) == MODELS)
            break;
    }
    ligi_bitmap_set(&posting.set, 77, 1);
    ligi_value_begin(&change->value);
    ligi_put_varint(&change->value, posting.bytes);
    ligi_put_bytes(&change->value, data, ligi_postings_put(&posting.set, data));
    ligi_value_end(&change->value, &key, secret);
    return ligi_change_put(change, &key);
}

/* A posting of a layer that nobody has. */
static lig_status false_posting(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    ligi_hash128 hash = {1, 2};
    ligi_catalog_key key = ligi_catalog_key_posting(&hash, 0);
    ligi_bitmap set = {0};
    uint8_t data[LIGI_BITMAP_BYTES];
    ligi_bitmap_set(&set, 1, 1);
    ligi_value_begin(&change->value);
    ligi_put_varint(&change->value, 0);
    ligi_put_bytes(&change->value, data, ligi_postings_put(&set, data));
    ligi_value_end(&change->value, &key, view->store->secret);
    return ligi_change_put(change, &key);
}

/* Who has other bytes than the others say is no longer noted. */
static lig_status lost_irregular(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context, (void)view;
    ligi_hash128 hash = ligi_irregular_key();
    ligi_catalog_key key = ligi_catalog_key_posting(&hash, 0);
    return ligi_change_erase(change, &key);
}

static lig_status false_fingerprint(void *context, const ligi_catalog_view *view,
                                    ligi_change *change)
{
    (void)context;
    ligi_fingerprint_entry fingerprint = {
        .first = 1, .print = {2, 3}, .bytes = 70000, .pack = 999, .offset = 4096, .owner = 1};
    ligi_catalog_key key = ligi_fingerprint_key(&fingerprint);
    ligi_fingerprint_put(&change->value, &fingerprint, view->store->secret);
    return ligi_change_put(change, &key);
}

static lig_status damaged_fingerprint(void *context, const ligi_catalog_view *view,
                                      ligi_change *change)
{
    (void)context;
    lig_catalog_item item;
    ligi_catalog_key key;
    LIG_TRY(item_of(view, LIGI_TABLE_FINGERPRINT, 1, &item, &key));
    change->value.bytes = 0;
    ligi_put_bytes(&change->value, item.value, item.value_bytes);
    change->value.data[4] ^= 1;
    return ligi_change_put(change, &key);
}

static lig_status damaged_graph(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    (void)context;
    lig_catalog_item item;
    ligi_catalog_key key;
    LIG_TRY(item_of(view, LIGI_TABLE_GRAPH, 1, &item, &key));
    change->value.bytes = 0;
    ligi_put_bytes(&change->value, item.value, item.value_bytes);
    change->value.data[4] ^= 1;
    return ligi_change_put(change, &key);
}

static void test_mend(void **state)
{
    (void)state;
    const ligi_edit kinds[] = {
        lost_posting,  lost_column,    lost_graph,        lost_fingerprint,    wide_posting,
        false_posting, lost_irregular, false_fingerprint, damaged_fingerprint, damaged_graph};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        lig_store *store = filled();
        uint64_t repaired;
        assert_int_equal(problems(store, 0, &repaired), 0);
        find_all(store);
        assert_ok(ligi_change_commit(store, kinds[i], NULL, NULL));
        int fault = kinds[i] != lost_fingerprint; /* that is a lost chance to share, and put back */
        assert_int_equal(problems(store, 0, &repaired) > 0, fault);
        assert_int_equal(repaired, 0);
        assert_int_equal(problems(store, LIG_CHECK_REPAIR, &repaired) > 0, fault);
        assert_true(repaired > 0);
        assert_int_equal(problems(store, LIG_CHECK_REPAIR, &repaired), 0);
        assert_int_equal(repaired, 0);
        find_all(store);
        lig_store_close(store);
    }
}

/* Models come and go; the index is always what the graphs say. */
static void test_history(void **state)
{
    (void)state;
    lig_store *store = filled();
    uint64_t repaired;
    lig_update update = LIG_UPDATE_INIT;
    const lig_metric metrics[2] = {{"acc", .75}, {"loss", 3}};
    const lig_tag gone = {"run", NULL};
    update.metrics = metrics, update.metric_count = 2;
    update.tags = &gone, update.tag_count = 1;
    assert_ok(lig_store_update(store, "m1", &update));
    assert_int_equal(problems(store, 0, &repaired), 0);
    for (int i = 0; i < MODELS; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%d", i);
        assert_ok(lig_store_retire(store, name));
        assert_int_equal(problems(store, 0, &repaired), 0);
    }
    lig_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mend),
        cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
