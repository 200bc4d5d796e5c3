#include "store/handle.h"
#include "store_scene.h"

enum { BIG = 900000, MIDDLE = 20000, SMALL = 40 }; /* floats: 3.4 MiB, 78 KiB, 160 bytes */

static float big[BIG], middle[MIDDLE], small[SMALL], back[BIG];
static int64_t big_length = BIG, middle_length = MIDDLE, small_length = SMALL;

static void make(lig_tensor *tensors, uint64_t seed)
{
    scene_fill(big, sizeof big, seed);
    scene_fill(middle, sizeof middle, seed + 1);
    scene_fill(small, sizeof small, seed + 2);
    tensors[0] = scene_tensor("big", big, &big_length);
    tensors[1] = scene_tensor("middle", middle, &middle_length);
    tensors[2] = scene_tensor("small", small, &small_length);
}

static void flip(float *value)
{
    *(unsigned char *)value ^= 1;
}

static lig_store *opened(const char *uri)
{
    lig_store *store;
    assert_ok(lig_store_open(&store, uri));
    return store;
}

static void check_clean(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    for (size_t i = 0; i < report->problem_count; i++)
        print_message("problem: %s\n", report->problems[i]);
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
}

static void check_bytes(lig_store *store, const char *model, const lig_tensor *tensor)
{
    lig_tensor into = *tensor;
    into.data = back;
    memset(back, 0xee, sizeof back);
    assert_ok(lig_store_load(store, model, &into, 1));
    assert_memory_equal(back, tensor->data, tensor->bytes);
}

static uint64_t packs_of(lig_store *store)
{
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    return stats.packs;
}

static void test_parent(void **state)
{
    scene *places = *state;
    const char *uris[] = {places->file, places->memory};
    for (int u = 0; u < 2; u++) {
        lig_store *store = opened(uris[u]);
        lig_tensor tensors[3];
        lig_model *a, *b;
        make(tensors, 1);
        assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
        flip(&middle[7]);
        lig_save_options options = LIG_SAVE_INIT;
        options.parent = "a";
        assert_ok(lig_store_save(store, "b", tensors, 3, &options));
        assert_ok(lig_store_model(store, "a", &a));
        assert_ok(lig_store_model(store, "b", &b));
        assert_int_equal(b->parent, a->id);
        assert_int_equal(b->own_bytes, sizeof middle);
        assert_int_equal(b->bytes, a->bytes);
        uint64_t owners[3] = {a->id, b->id, a->id};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(b->tensors[i].owner, owners[i]);
            check_bytes(store, "b", &tensors[i]);
        }
        assert_int_equal(b->tensors[0].pack, a->tensors[0].pack);
        assert_int_equal(b->tensors[2].offset, a->tensors[2].offset);
        check_clean(store);
        assert_ok(lig_store_retire(store, "a"));
        for (int i = 0; i < 3; i++)
            check_bytes(store, "b", &tensors[i]);
        check_clean(store);
        assert_int_equal(packs_of(store), 2);
        assert_ok(lig_store_retire(store, "b"));
        assert_int_equal(packs_of(store), 0);
        check_clean(store);
        lig_model_destroy(a);
        lig_model_destroy(b);
        lig_store_close(store);
    }
}

/* From 64 KiB up any stored tensor will do, under any name, dtype and shape. */
static void test_any(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_tensor tensors[3];
    make(tensors, 5);
    assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
    int64_t shape[2] = {2, BIG * 2};
    lig_tensor other[3] = {tensors[2], tensors[1], tensors[0]};
    other[2].name = "other";
    other[2].dtype = LIG_UINT8, other[2].ndim = 2, other[2].shape = shape;
    assert_ok(lig_store_save(store, "b", other, 3, NULL));
    lig_model *b;
    assert_ok(lig_store_model(store, "b", &b));
    assert_int_equal(b->own_bytes, sizeof small);
    assert_int_equal(packs_of(store), 1); /* what is new lies in the catalog */
    for (int i = 0; i < 3; i++)
        check_bytes(store, "b", &other[i]);
    flip(&big[BIG - 1]); /* the same first block */
    assert_ok(lig_store_save(store, "c", tensors, 3, NULL));
    check_bytes(store, "c", &tensors[0]);
    assert_int_equal(packs_of(store), 2);
    check_clean(store);
    lig_model_destroy(b);
    lig_store_close(store);
}

/* --- bytes --- */

enum { MANY = 3000, EACH = 300 };

static uint64_t stored_bytes(lig_store *store)
{
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    return stats.stored_bytes;
}

/* What a save brings: changed bytes and 1 %, 64 KiB, and 64 bytes for each tensor. */
static void test_bound(void **state)
{
    scene *places = *state;
    const char *uris[] = {places->memory, places->file};
    static char names[MANY][48];
    static lig_tensor tensors[MANY];
    static int64_t each = EACH;
    assert_true(MANY * EACH <= BIG);
    for (int u = 0; u < 2; u++) {
        lig_store *store = opened(uris[u]);
        scene_fill(big, sizeof big, 70);
        for (int i = 0; i < MANY; i++) {
            snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.down_proj.weight", i);
            tensors[i] = scene_tensor(names[i], big + i * EACH, &each);
        }
        assert_ok(lig_store_save(store, "m0", tensors, MANY, NULL));
        lig_save_options options = LIG_SAVE_INIT;
        for (int round = 1; round < 8; round++) {
            char name[8], parent[8];
            uint64_t changed = 0, before = stored_bytes(store);
            for (int i = round; i < MANY && round < 6; i += 3 * round * round) {
                flip(&big[i * EACH]);
                changed += EACH * 4;
            }
            snprintf(name, sizeof name, "m%d", round);
            snprintf(parent, sizeof parent, "m%d", round - 1);
            options.parent = parent;
            assert_ok(lig_store_save(store, name, tensors, MANY, &options));
            uint64_t grown = stored_bytes(store) - before;
            if (grown > changed + changed / 100 + 65536 + 64 * MANY)
                fail_msg("%llu bytes for %llu", (unsigned long long)grown,
                         (unsigned long long)changed);
        }
        check_clean(store);
        lig_store_close(store);
    }
}

/* --- history --- */

static void test_history(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->memory);
    lig_tensor tensors[3];
    lig_save_options options = LIG_SAVE_INIT;
    make(tensors, 9);
    assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
    options.parent = "a";
    flip(&middle[0]);
    assert_ok(lig_store_save(store, "b", tensors, 2, &options));
    int64_t shape[2] = {4, SMALL / 4};
    tensors[1] = tensors[2];
    tensors[1].name = "extra";
    tensors[2].ndim = 2, tensors[2].shape = shape;
    options.parent = "b";
    assert_ok(lig_store_save(store, "c", tensors, 3, &options));
    assert_ok(lig_store_save(store, "d", tensors, 1, &options));
    lig_lineage *lineage;
    assert_ok(lig_store_lineage(store, "c", &lineage));
    assert_int_equal(lineage->ancestor_count, 2);
    assert_string_equal(lineage->ancestors[0]->name, "b");
    assert_string_equal(lineage->ancestors[1]->name, "a");
    assert_int_equal(lineage->child_count, 0);
    lig_lineage_destroy(lineage);
    assert_ok(lig_store_retire(store, "a"));
    assert_ok(lig_store_lineage(store, "b", &lineage));
    assert_int_equal(lineage->ancestor_count, 0);
    assert_int_equal(lineage->child_count, 2);
    assert_string_equal(lineage->children[0]->name, "c");
    assert_string_equal(lineage->children[1]->name, "d");
    lig_lineage_destroy(lineage);
    assert_fails(lig_store_lineage(store, "a", &lineage), LIG_E_NOTFOUND);
    lig_diff *diff;
    assert_ok(lig_store_diff(store, "b", "c", &diff)); /* big, middle; big, extra, small */
    assert_int_equal(diff->count, 4);
    const int changes[] = {LIG_CHANGE_NONE, LIG_CHANGE_REMOVED, LIG_CHANGE_ADDED, LIG_CHANGE_ADDED};
    for (int i = 0; i < 4; i++)
        assert_int_equal(diff->tensors[i].change, changes[i]);
    assert_null(diff->tensors[1].b);
    assert_null(diff->tensors[2].a);
    assert_int_equal(diff->bytes[LIG_CHANGE_NONE], sizeof big);
    assert_int_equal(diff->counts[LIG_CHANGE_ADDED], 2);
    lig_diff_destroy(diff);
    tensors[2].ndim = 1, tensors[2].shape = &small_length;
    flip(&small[0]);
    assert_ok(lig_store_save(store, "e", tensors, 3, NULL));
    assert_ok(lig_store_diff(store, "c", "e", &diff));
    assert_int_equal(diff->tensors[1].change, LIG_CHANGE_BYTES);
    assert_int_equal(diff->tensors[2].change, LIG_CHANGE_SHAPE);
    lig_diff_destroy(diff);
    assert_fails(lig_store_diff(store, "c", "a", &diff), LIG_E_NOTFOUND);
    lig_store_close(store);
}

static size_t stamps_of(lig_store *store, const char *name)
{
    int64_t *stamps;
    size_t count;
    assert_ok(lig_store_time_stamps(store, name, &stamps, &count));
    for (size_t i = 1; i < count; i += 2)
        assert_true(stamps[i] >= stamps[i - 1]);
    lig_time_stamps_destroy(stamps);
    return count;
}

static void test_stamps(void **state)
{
    scene_local_only();
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_tensor tensors[3];
    make(tensors, 9);
    for (int i = 0; i < 9; i++)
        assert_int_equal(stamps_of(store, lig_store_time_stamp_name((size_t)i)), 0);
    assert_null(lig_store_time_stamp_name(9));
    assert_ok(lig_store_clear_time_stamps(store, NULL));
    assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
    assert_ok(lig_store_load(store, "a", tensors, 3));
    assert_ok(lig_store_retire(store, "a"));
    assert_int_equal(stamps_of(store, "save"), 2);
    assert_int_equal(stamps_of(store, "write"), 2);
    assert_int_equal(stamps_of(store, "sync"), 2);
    assert_int_equal(stamps_of(store, "load"), 2);
    assert_int_equal(stamps_of(store, "read"), 2);
    assert_int_equal(stamps_of(store, "retire"), 2);
    assert_true(stamps_of(store, "commit") >= 4);
    assert_ok(lig_store_clear_time_stamps(store, "load"));
    assert_int_equal(stamps_of(store, "load"), 0);
    assert_int_equal(stamps_of(store, "save"), 2);
    for (int i = 0; i < 70000; i++)
        ligi_stamps_note(&store->stamps, LIGI_STAMP_RETIRE, i);
    assert_int_equal(stamps_of(store, "retire"), 2 * 65536);
    int64_t *none;
    size_t count;
    assert_fails(lig_store_time_stamps(store, "nothing", &none, &count), LIG_E_NOTFOUND);
    lig_store_close(store);
}

/* --- what is held --- */

static const lig_layer layers[2] = {{"big", "B", 1}, {"middle", "M", 1}};
static const lig_input from_first = {0, 0};
static const lig_call calls[2] = {{0, 0, NULL}, {1, 1, &from_first}};
static const lig_graph graph = {"test 1", layers, calls, 2, 2};

static lig_match **find_one(lig_store *store)
{
    lig_match **matches;
    size_t count;
    assert_ok(lig_store_find(store, &graph, NULL, &matches, &count));
    assert_int_equal(count, 1);
    return matches;
}

static void compact(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
}

/* A match keeps its model's bytes, and gives them on, when the model is gone. */
static void test_match(void **state)
{
    scene *places = *state;
    const char *uris[] = {places->memory, places->file};
    for (int u = 0; u < 2; u++) {
        lig_store *store = opened(uris[u]), *other = opened("mem:");
        lig_tensor tensors[3];
        lig_save_options options = LIG_SAVE_INIT;
        lig_view *view;
        make(tensors, 20);
        options.graphs = &graph, options.graph_count = 1;
        assert_ok(lig_store_save(store, "a", tensors, 3, &options));
        lig_match **found = find_one(store);
        assert_ok(lig_store_map(store, "a", 0, &view));
        assert_ok(lig_store_retire(store, "a"));
        compact(store);
        assert_memory_equal(lig_view_model(view)->tensors[0].tensor.data, big, sizeof big);
        lig_tensor into = tensors[0];
        into.data = back;
        assert_ok(lig_store_load_match(store, found[0], &into, 1));
        assert_memory_equal(back, big, sizeof big);
        flip(&small[3]);
        options.match = found[0];
        assert_fails(lig_store_save(other, "b", tensors, 3, &options), LIG_E_INVALID);
        assert_ok(lig_store_save(store, "b", tensors, 3, &options));
        assert_ok(lig_store_save(store, "c", tensors, 3, NULL)); /* known again */
        lig_match_release(found[0]);
        lig_matches_destroy(found, 1);
        compact(store);
        check_clean(store);
        lig_model *b, *c;
        assert_ok(lig_store_model(store, "b", &b));
        assert_ok(lig_store_model(store, "c", &c));
        assert_int_equal(b->own_bytes, sizeof small);
        assert_int_equal(c->own_bytes, sizeof small);
        assert_string_equal(b->parent_name, "a");
        assert_memory_equal(lig_view_model(view)->tensors[0].tensor.data, big, sizeof big);
        for (int i = 0; i < 3; i++)
            check_bytes(store, "b", &tensors[i]);
        lig_model_destroy(b);
        lig_model_destroy(c);
        assert_ok(lig_store_retire(store, "b"));
        assert_ok(lig_store_retire(store, "c"));
        assert_int_equal(packs_of(store), 0);
        check_clean(store);
        lig_view_destroy(view);
        lig_store_close(store);
        lig_store_close(other);
    }
}

/* What a match does not hold any more is written again. */
static void test_released(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_tensor tensors[3];
    lig_save_options options = LIG_SAVE_INIT;
    make(tensors, 30);
    options.graphs = &graph, options.graph_count = 1;
    assert_ok(lig_store_save(store, "a", tensors, 3, &options));
    lig_match **found = find_one(store);
    lig_match_release(found[0]);
    assert_ok(lig_store_retire(store, "a"));
    compact(store);
    options.match = found[0];
    assert_ok(lig_store_save(store, "b", tensors, 3, &options));
    lig_matches_destroy(found, 1);
    for (int i = 0; i < 3; i++)
        check_bytes(store, "b", &tensors[i]);
    check_clean(store);
    lig_store_close(store);
}

/* Memory may be used again as soon as progress says so, also where nothing was written. The parent
 * goes while the save is under way. */
static void test_in_parts(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_tensor tensors[3];
    lig_save_options options = LIG_SAVE_INIT;
    lig_save *save;
    lig_ticket *ticket;
    make(tensors, 40);
    assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
    options.parent = "a";
    assert_ok(lig_save_begin(&save, store, "b", tensors, 3, &options));
    assert_ok(lig_save_offer(save, big, NULL));
    uint64_t done = 0;
    while (done < 1)
        assert_ok(lig_save_progress(save, done, LIG_FOREVER, &done));
    memcpy(back, big, sizeof big);
    memset(big, 0, sizeof big);
    assert_ok(lig_store_retire(store, "a"));
    compact(store);
    assert_ok(lig_save_offer(save, middle, NULL));
    assert_ok(lig_save_offer(save, small, NULL));
    assert_ok(lig_save_commit(save, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    memcpy(big, back, sizeof big);
    lig_model *b;
    assert_ok(lig_store_model(store, "b", &b));
    assert_int_equal(b->own_bytes, 0);
    lig_model_destroy(b);
    for (int i = 0; i < 3; i++)
        check_bytes(store, "b", &tensors[i]);
    check_clean(store);
    lig_store_close(store);
}

/* A parent that is replaced by its child leaves no pack behind. */
static void test_heir(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    lig_tensor tensors[3];
    lig_save_options options = LIG_SAVE_INIT;
    options.parent = "a";
    options.flags = LIG_SAVE_REPLACE;
    make(tensors, 50);
    assert_ok(lig_store_save(store, "a", tensors, 3, NULL));
    make(tensors, 60);
    assert_ok(lig_store_save(store, "a", tensors, 3, &options));
    assert_int_equal(packs_of(store), 1);
    check_clean(store); /* and no orphan */
    lig_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parent, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_any, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_bound, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_history, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_stamps, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_match, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_released, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_in_parts, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_heir, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
