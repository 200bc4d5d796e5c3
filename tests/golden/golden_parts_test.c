/* A store with a model that several processes wrote (manifest version 2) must be read by every
 * later library.
 *
 *     golden_parts_test                  reads tests/golden/store-2
 *     golden_parts_test make FOLDER      writes such a store; done once for each format version */
#include "part_scene.h"

#define GOLDEN LIGI_SOURCE_DIR "/tests/golden/store-2"

static part_scene model, child;

static void make_models(void)
{
    for (int r = 0; r < PART_ROWS; r++)
        for (int c = 0; c < PART_COLUMNS; c++) {
            model.rows[r][c] = (float)(r * PART_COLUMNS + c);
            model.columns[r][c] = (float)(r - c) / 4;
        }
    for (int i = 0; i < 17; i++)
        model.bias[i] = (float)i;
    model.scale = 0.5F;
    child = model;
    child.rows[0][0] = -1;
}

static int make(const char *folder)
{
    make_models();
    part_save(folder, "parts/1", &model, 2, NULL);
    part_save(folder, "parts/2", &child, 2, "parts/1");
    return 0;
}

static void check_all(const char *uri)
{
    lig_store *store;
    lig_model *shown;
    make_models();
    assert_ok(lig_store_open(&store, uri));
    part_compare(store, "parts/1", &model);
    part_compare(store, "parts/2", &child);
    part_sound(store);
    assert_ok(lig_store_model(store, "parts/2", &shown));
    assert_int_equal(shown->tensors[0].boxes, 2);
    assert_int_equal(shown->own_bytes, sizeof model.rows / 2);
    assert_string_equal(shown->parent_name, "parts/1");
    lig_model_destroy(shown);
    lig_store_close(store);
}

static void test_read(void **state)
{
    (void)state;
    check_all(GOLDEN "?mode=r");
}

static void test_footers(void **state)
{
    scene *places = *state;
    char command[400];
    snprintf(command, sizeof command, "cp -r '%s' '%s/store' && rm '%s/store/catalog.mdb'", GOLDEN,
             places->folder, places->folder);
    assert_int_equal(system(command), 0);
    lig_store *store;
    assert_ok(lig_store_open(&store, places->file));
    scene_lost(store, LIG_CHECK_REPAIR);
    lig_store_close(store);
    check_all(places->file);
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "make") == 0)
        return make(arguments[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test_setup_teardown(test_footers, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
