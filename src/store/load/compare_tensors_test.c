#include "part_scene.h"

#include "store/load/compare_tensors.h"
#include "store/load/resolved_model.h"

static part_scene model, other;

static ligi_pair pair_of(const ligi_model *a, const ligi_model *b, const char *name)
{
    ligi_pair pair = {SIZE_MAX, SIZE_MAX, -1};
    for (size_t i = 0; i < a->manifest.shown_count; i++)
        if (strcmp(a->manifest.shown[i].tensor.name, name) == 0)
            pair.a = i;
    for (size_t i = 0; i < b->manifest.shown_count; i++)
        if (strcmp(b->manifest.shown[i].tensor.name, name) == 0)
            pair.b = i;
    return pair;
}

/* Windows of less than a row, of some rows, of a tensor and a bit, of everything. */
static void test_windows(void **state)
{
    scene *places = *state;
    static const uint64_t windows[] = {1000, 4000, 9000, sizeof model.rows + 50, 1 << 20};
    static const char *const names[] = {"bias", "columns", "rows", "scale"};
    lig_store *store;
    lig_ref *a, *b, *c;
    part_fill(&model, 1);
    other = model;
    part_save(places->file, "a", &model, 3, NULL);
    part_save(places->file, "b", &model, 5, NULL);
    uint8_t *last = (uint8_t *)&other.columns[PART_ROWS - 1][PART_COLUMNS - 1] + 3;
    *last ^= 1;
    part_save(places->file, "c", &other, 5, NULL);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_resolve(store, "a", &a));
    assert_ok(lig_store_resolve(store, "b", &b));
    assert_ok(lig_store_resolve(store, "c", &c));
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        ligi_pair pairs[4];
        for (size_t i = 0; i < 4; i++)
            pairs[i] = pair_of(a->model, b->model, names[i]);
        assert_ok(ligi_compare_tensors(a, b, pairs, 4, windows[w]));
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(pairs[i].differ, 0);
        for (size_t i = 0; i < 4; i++)
            pairs[i] = pair_of(a->model, c->model, names[i]);
        assert_ok(ligi_compare_tensors(a, c, pairs, 4, windows[w]));
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(pairs[i].differ, i == 1);
    }
    lig_ref_release(a);
    lig_ref_release(b);
    lig_ref_release(c);
    lig_store_close(store);
}

/* Every single-bit difference is found, and nothing else. */
static void test_random(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_ref *a, *b;
    uint64_t seed = 5;
    part_fill(&model, 2);
    part_save(places->file, "a", &model, 2, NULL);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_resolve(store, "a", &a));
    for (int i = 0; i < 20; i++) {
        int which = (int)(scene_random(&seed) % 2);
        other = model;
        uint8_t *at = which ? (uint8_t *)other.columns : (uint8_t *)other.rows;
        at[scene_random(&seed) % sizeof other.rows] ^= (uint8_t)(1u << scene_random(&seed) % 8);
        part_save(places->file, "b", &other, 3 + i % 4, NULL);
        assert_ok(lig_store_resolve(store, "b", &b));
        ligi_pair pairs[2] = {pair_of(a->model, b->model, "rows"),
                              pair_of(a->model, b->model, "columns")};
        assert_false(ligi_compare_same_boxes(&a->model->manifest, pairs[0].a, &b->model->manifest,
                                             pairs[0].b));
        uint64_t window = 1000 + scene_random(&seed) % 100000;
        assert_ok(ligi_compare_tensors(a, b, pairs, 2, window));
        assert_int_equal(pairs[which].differ, 1);
        assert_int_equal(pairs[!which].differ, 0);
        lig_ref_release(b);
    }
    lig_ref_release(a);
    lig_store_close(store);
}

/* The result does not depend on how a tensor was saved; whole tensors are compared with boxes as
 * well. */
static void test_diff(void **state)
{
    scene *places = *state;
    lig_store *store;
    lig_diff *diff;
    lig_tensor tensors[4];
    part_fill(&model, 3);
    other = model;
    other.rows[7][3] += 1;
    part_whole(&other, tensors);
    part_save(places->file, "a", &model, 4, NULL);
    part_save(places->file, "b", &model, 2, NULL);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_save(store, "whole", tensors, 4, NULL));
    assert_ok(lig_store_diff(store, "a", "b", &diff));
    assert_int_equal(diff->counts[LIG_CHANGE_NONE], 4);
    assert_int_equal(diff->bytes[LIG_CHANGE_NONE], diff->a->bytes);
    lig_diff_destroy(diff);
    for (int i = 0; i < 2; i++) {
        assert_ok(lig_store_diff(store, i ? "whole" : "b", i ? "b" : "whole", &diff));
        assert_int_equal(diff->counts[LIG_CHANGE_NONE], 3);
        assert_int_equal(diff->counts[LIG_CHANGE_BYTES], 1);
        assert_int_equal(diff->bytes[LIG_CHANGE_BYTES], sizeof other.rows);
        for (size_t j = 0; j < diff->count; j++)
            assert_int_equal(diff->tensors[j].change == LIG_CHANGE_BYTES,
                             strcmp(diff->tensors[j].name, "rows") == 0);
        lig_diff_destroy(diff);
    }
    lig_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_windows, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_random, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_diff, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
