/* What is stored already is recognized on the device: its bytes do not cross the bus. The kernel is
 * loaded once a device; device 0 of this program has none. */
#include "store_scene.h"

#include "fake_cuda.h"

#define MIB ((size_t)1 << 20)
enum { COUNT = 3 };

/* The last blocks of the first two are too small for the kernel. */
static const size_t sizes[COUNT] = {8 * MIB + 100, 5 * MIB + 3, 3 * MIB};
static const char *const names[COUNT] = {"a", "b", "c"};

typedef struct model {
    lig_tensor tensors[COUNT];
    int64_t shapes[COUNT];
} model;

static void model_init(model *made, int device)
{
    for (size_t i = 0; i < COUNT; i++) {
        void *data = fake_cuda_alloc(sizes[i], device);
        scene_fill(data, sizes[i], 10 + i);
        made->shapes[i] = (int64_t)sizes[i];
        made->tensors[i] = (lig_tensor){.name = names[i],
                                        .data = data,
                                        .bytes = sizes[i],
                                        .shape = &made->shapes[i],
                                        .ndim = 1,
                                        .dtype = LIG_UINT8,
                                        .memory = LIG_MEMORY_CUDA,
                                        .device = device};
    }
}

/* Saves a model, then a child of which tensor "c" has changed; returns how many copies came from
 * the device for the child. */
static unsigned save_twice(const char *uri, int device)
{
    model saved;
    lig_store *store;
    lig_save_options options = LIG_SAVE_INIT;
    lig_model *made = NULL;
    model_init(&saved, device);
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_save(store, "parent", saved.tensors, COUNT, NULL));
    uint8_t *changed = saved.tensors[2].data, *host = malloc(sizes[0]);
    changed[2 * MIB]++;
    options.parent = "parent";
    options.model = &made;
    unsigned before = fake_cuda_calls("cuMemcpyDtoHAsync");
    assert_ok(lig_store_save(store, "child", saved.tensors, COUNT, &options));
    unsigned copies = fake_cuda_calls("cuMemcpyDtoHAsync") - before;
    assert_int_equal(made->own_bytes, sizes[2]);
    lig_model_destroy(made);
    for (size_t i = 0; i < COUNT; i++) {
        lig_tensor into = saved.tensors[i];
        into.data = host;
        into.memory = LIG_MEMORY_HOST;
        into.device = 0;
        lig_read read = {.into = into};
        assert_ok(lig_store_read(store, "child", &read, 1, 0));
        assert_memory_equal(host, saved.tensors[i].data, sizes[i]);
        fake_cuda_free(saved.tensors[i].data);
    }
    free(host);
    lig_store_close(store);
    assert_string_equal(fake_cuda_breach(), "");
    return copies;
}

static void without_a_kernel_the_host_hashes(void **state)
{
    const scene *places = *state;
    fake_cuda_fail("cuModuleLoadDataEx", 1, 222);
    assert_true(save_twice(places->file, 0) > 8);
    assert_int_equal(fake_cuda_calls("cuLaunchKernel"), 0);
}

/* Copied are: the hashes of first blocks and of the others, the last blocks of "a" and "b", and "c",
 * which takes two slots. */
static void unchanged_tensors_do_not_cross(void **state)
{
    const scene *places = *state;
    assert_int_equal(save_twice(places->file, 1), 2 + 2 + 2);
    assert_true(fake_cuda_calls("cuLaunchKernel") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_kernel_the_host_hashes, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(unchanged_tensors_do_not_cross, scene_setup,
                                        scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
