#include "store_scene.h"

#include <limits.h>
#include <unistd.h>

enum { LENGTH = 50000 };

static float values[2][LENGTH], back[2][LENGTH];
static int64_t length = LENGTH;

static void round_trip(const char *backend, const char *config)
{
    lig_checkpoint *checkpoint;
    lig_tensor tensors[2] = {scene_tensor("w", values[0], &length),
                             scene_tensor("b", values[1], &length)};
    scene_fill(values, sizeof values, 3);
    assert_ok(lig_checkpoint_open(&checkpoint, backend, config));
    assert_ok(lig_checkpoint_save(checkpoint, "weights", tensors, 2));
    values[0][0] = 1;
    assert_ok(lig_checkpoint_save(checkpoint, "weights", tensors, 2));
    tensors[0].data = back[0];
    tensors[1].data = back[1];
    assert_ok(lig_checkpoint_load(checkpoint, "weights", tensors, 2));
    assert_memory_equal(values, back, sizeof back);
    assert_fails(lig_checkpoint_load(checkpoint, "weights", tensors, 1), LIG_E_MISMATCH);
    assert_non_null(strstr(lig_error_text(), "'b'"));
    lig_model *model;
    assert_ok(lig_checkpoint_model(checkpoint, "weights", &model));
    assert_int_equal(model->tensor_count, 2);
    assert_string_equal(model->tensors[1].tensor.name, "b");
    lig_model_destroy(model);
    tensors[1].name = "c";
    assert_fails(lig_checkpoint_load(checkpoint, "weights", tensors, 2), LIG_E_MISMATCH);
    assert_ok(lig_checkpoint_drop(checkpoint, "weights"));
    assert_fails(lig_checkpoint_load(checkpoint, "weights", tensors, 2), LIG_E_NOTFOUND);
    assert_fails(lig_checkpoint_model(checkpoint, "weights", &model), LIG_E_NOTFOUND);
    lig_checkpoint_close(checkpoint);
}

static void test_stores(void **state)
{
    scene *places = *state;
    char path[160];
    round_trip("mem", NULL);
    round_trip("mem:somewhere", "");
    round_trip(places->file, "");
    snprintf(path, sizeof path, "%s/by-name", places->folder);
    round_trip("file", path);
    snprintf(path, sizeof path, "%s/by path", places->folder);
    round_trip(path, "mode=a");
}

static void test_others(void **state)
{
    (void)state;
    lig_checkpoint *checkpoint;
    lig_tensor tensor = scene_tensor("w", values[0], &length);
    assert_ok(lig_checkpoint_open(&checkpoint, "null", ""));
    assert_ok(lig_checkpoint_save(checkpoint, "weights", &tensor, 1));
    lig_model *model;
    assert_fails(lig_checkpoint_model(checkpoint, "weights", &model), LIG_E_UNSUPPORTED);
    lig_checkpoint_close(checkpoint);
    assert_fails(lig_checkpoint_open(&checkpoint, "nobody:x", ""), LIG_E_NOTFOUND);
    assert_fails(lig_checkpoint_open(&checkpoint, "", ""), LIG_E_INVALID);
    lig_checkpoint_close(NULL);
}

/* A word that is no backend's name is a folder, as in a store's URI. */
static void test_folder_by_its_bare_name(void **state)
{
    scene *places = *state;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(places->folder), 0);
    lig_checkpoint *checkpoint;
    assert_fails(lig_checkpoint_open(&checkpoint, "runs", "host"), LIG_E_INVALID);
    assert_non_null(strstr(lig_error_text(), "'host'"));
    assert_fails(lig_checkpoint_open(&checkpoint, "runs", "host=a"), LIG_E_INVALID);
    assert_int_equal(access("runs", F_OK), -1);
    assert_int_equal(access("runs?host", F_OK), -1);
    round_trip("runs", "");
    assert_int_equal(access("runs", F_OK), 0);
    assert_int_equal(chdir(before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stores, scene_setup, scene_teardown),
        cmocka_unit_test(test_others),
        cmocka_unit_test_setup_teardown(test_folder_by_its_bare_name, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
