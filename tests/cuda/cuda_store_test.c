/* Stores whose tensors lie in device memory, over the fake driver. */
#include "store_scene.h"

#include "fake_cuda.h"

#include <dirent.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)
enum { COUNT = 5 };

/* A model: tensors in device memory and one in host memory. */
typedef struct model {
    lig_tensor tensors[COUNT];
    int64_t shapes[COUNT];
    uint8_t *expected[COUNT];
} model;

static const size_t sizes[COUNT] = {100, 3 * MIB + 5, 40 * MIB + 1, 70000, 0};
static const char *const names[COUNT] = {"small", "odd", "large", "host", "empty"};

static int on_device(size_t i)
{
    return strcmp(names[i], "host") != 0;
}

static void model_init(model *made, uint64_t seed)
{
    *made = (model){0};
    for (size_t i = 0; i < COUNT; i++) {
        int device = (int)i % FAKE_CUDA_DEVICES;
        void *data = on_device(i) ? fake_cuda_alloc(sizes[i], device) : malloc(sizes[i]);
        made->shapes[i] = (int64_t)sizes[i];
        made->expected[i] = malloc(sizes[i] + 1);
        scene_fill(made->expected[i], sizes[i], seed + i);
        memcpy(data, made->expected[i], sizes[i]);
        made->tensors[i] = (lig_tensor){.name = names[i],
                                        .data = data,
                                        .bytes = sizes[i],
                                        .shape = &made->shapes[i],
                                        .ndim = 1,
                                        .dtype = LIG_UINT8,
                                        .memory = on_device(i) ? LIG_MEMORY_CUDA : LIG_MEMORY_HOST,
                                        .device = on_device(i) ? device : 0};
    }
}

static void model_fini(model *gone)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (on_device(i))
            fake_cuda_free(gone->tensors[i].data);
        else
            free(gone->tensors[i].data);
        free(gone->expected[i]);
    }
}

static void wipe(model *of)
{
    for (size_t i = 0; i < COUNT; i++)
        memset(of->tensors[i].data, 0xee, sizes[i]);
}

static void assert_whole(const model *of)
{
    for (size_t i = 0; i < COUNT; i++)
        if (memcmp(of->tensors[i].data, of->expected[i], sizes[i]) != 0)
            fail_msg("tensor '%s' has other bytes", names[i]);
    assert_string_equal(fake_cuda_breach(), "");
}

static void check_round(const char *uri)
{
    model saved;
    lig_store *store;
    model_init(&saved, 1);
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_save(store, "m", saved.tensors, COUNT, NULL));
    wipe(&saved);
    assert_ok(lig_store_load(store, "m", saved.tensors, COUNT));
    assert_whole(&saved);
    assert_ok(lig_store_save(store, "little", saved.tensors, 1, NULL)); /* inline */
    wipe(&saved);
    assert_ok(lig_store_load(store, "little", saved.tensors, 1));
    assert_memory_equal(saved.tensors[0].data, saved.expected[0], sizes[0]);
    lig_store_close(store);
    model_fini(&saved);
}

static void saved_and_loaded(void **state)
{
    const scene *places = *state;
    char plain[160];
    snprintf(plain, sizeof plain, "%s-plain?direct=0", places->file);
    check_round(places->memory);
    check_round(places->file);
    check_round(plain);
}

/* Past the page cache, too: what was written just now is dropped from it. */
static void loaded_from_the_disk(void **state)
{
    const scene *places = *state;
    char uncached[160];
    snprintf(uncached, sizeof uncached, "%s?cache=0", places->file);
    check_round(uncached);
}

typedef struct cold_load {
    char uri[160];
    pthread_t thread;
    lig_status status;
    model into;
} cold_load;

static void *load_cold(void *context)
{
    cold_load *self = context;
    lig_store *store;
    self->status = lig_store_open(&store, self->uri);
    for (int i = 0; self->status == LIG_OK && i < 3; i++) {
        wipe(&self->into);
        self->status = lig_store_load(store, "m", self->into.tensors, COUNT);
    }
    lig_store_close(store);
    return NULL;
}

/* Four readers want more buffers than there are: none waits for another with buffers in hand. */
static void readers_share_the_buffers(void **state)
{
    const scene *places = *state;
    cold_load readers[4];
    lig_store *store;
    for (int i = 0; i < 4; i++) {
        snprintf(readers[i].uri, sizeof readers[i].uri, "%s?cache=0&direct=1", places->file);
        model_init(&readers[i].into, 8);
    }
    assert_ok(lig_store_open(&store, readers[0].uri));
    assert_ok(lig_store_save(store, "m", readers[0].into.tensors, COUNT, NULL));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&readers[i].thread, NULL, load_cold, &readers[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].status, LIG_OK);
        assert_whole(&readers[i].into);
        model_fini(&readers[i].into);
    }
    lig_store_close(store);
}

static void saved_in_the_background(void **state)
{
    const scene *places = *state;
    model saved;
    lig_store *store;
    lig_ticket *ticket = NULL;
    model_init(&saved, 7);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_save_start(store, "m", saved.tensors, COUNT, NULL, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    wipe(&saved);
    assert_ok(lig_store_load(store, "m", saved.tensors, COUNT));
    assert_whole(&saved);
    lig_store_close(store);
    model_fini(&saved);
}

static void a_slice_is_filled(void **state)
{
    const scene *places = *state;
    model saved;
    lig_store *store;
    model_init(&saved, 3);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_save(store, "m", saved.tensors, COUNT, NULL));
    const int64_t starts[] = {0, MIB, 5 * MIB + 3}, steps[] = {1, 1, 3};
    const int64_t counts[] = {2 * MIB, 30 * MIB, MIB};
    for (int i = 0; i < 3; i++) {
        lig_slice slice = {.start = starts[i], .step = steps[i], .count = counts[i]};
        uint8_t *data = fake_cuda_alloc((size_t)counts[i], 0);
        lig_read read = {.name = "large", .slices = &slice, .into = saved.tensors[2]};
        read.into.data = data;
        read.into.shape = &counts[i];
        read.into.bytes = (uint64_t)counts[i];
        read.into.device = 0;
        assert_ok(lig_store_read(store, "m", &read, 1, 0));
        for (int64_t k = 0; k < counts[i]; k++)
            if (data[k] != saved.expected[2][starts[i] + k * steps[i]])
                fail_msg("byte %lld of slice %d differs", (long long)k, i);
        fake_cuda_free(data);
    }
    assert_string_equal(fake_cuda_breach(), "");
    lig_store_close(store);
    model_fini(&saved);
}

/* Flips a byte in the middle of the only pack. */
static void damage(const scene *places)
{
    char path[400] = "";
    snprintf(path, sizeof path, "%s/store/packs", places->folder);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/store/packs/%s", places->folder, entry->d_name);
    closedir(folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 20 * (long)MIB, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 20 * (long)MIB, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    fclose(file);
}

static void damage_is_found(void **state)
{
    const scene *places = *state;
    model saved;
    lig_store *store;
    model_init(&saved, 4);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_save(store, "m", saved.tensors, COUNT, NULL));
    damage(places);
    assert_fails(lig_store_load(store, "m", saved.tensors, COUNT), LIG_E_CORRUPT);
    assert_non_null(strstr(lig_error_text(), "'large'"));
    lig_store_close(store);
    model_fini(&saved);
}

static void a_failing_copy_fails_the_call(void **state)
{
    const scene *places = *state;
    char uncached[160];
    static const char *const calls[] = {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuEventRecord",
                                        "cuEventSynchronize"};
    model saved;
    lig_store *store;
    model_init(&saved, 5);
    snprintf(uncached, sizeof uncached, "%s?cache=0", places->file);
    assert_ok(lig_store_open(&store, uncached));
    assert_ok(lig_store_save(store, "first", saved.tensors, COUNT, NULL));
    for (size_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%zu", i);
        for (size_t k = 0; k < COUNT; k++) { /* nothing that is stored already */
            scene_fill(saved.expected[k], sizes[k], 100 * i + k);
            memcpy(saved.tensors[k].data, saved.expected[k], sizes[k]);
        }
        fake_cuda_fail(calls[i], 3, 719);
        lig_status status = lig_store_save(store, name, saved.tensors, COUNT, NULL);
        assert_int_equal(status, i == 1 ? LIG_OK : LIG_E_IO);
        if (i != 1) {
            assert_non_null(strstr(lig_error_text(), "fake error 719"));
            assert_ok(lig_store_save(store, name, saved.tensors, COUNT, NULL));
        }
        wipe(&saved);
        fake_cuda_fail(calls[i], 2, 719);
        status = lig_store_load(store, name, saved.tensors, COUNT);
        fake_cuda_fail(calls[i], 0, 0);
        assert_true(status == LIG_OK || strstr(lig_error_text(), "fake error 719"));
        assert_ok(lig_store_load(store, name, saved.tensors, COUNT));
        assert_whole(&saved);
    }
    lig_store_close(store);
    model_fini(&saved);
}

static void what_is_queued_is_saved(void **state)
{
    const scene *places = *state;
    model saved;
    lig_store *store;
    void *stream = fake_cuda_stream();
    model_init(&saved, 6);
    assert_ok(lig_store_open(&store, places->memory));
    fake_cuda_fill(stream, saved.tensors[2].data, 42, sizes[2]);
    assert_ok(lig_memory_follow(LIG_MEMORY_CUDA, 0, stream));
    assert_ok(lig_store_save(store, "m", saved.tensors, COUNT, NULL));
    memset(saved.expected[2], 42, sizes[2]);
    wipe(&saved);
    assert_ok(lig_store_load(store, "m", saved.tensors, COUNT));
    assert_whole(&saved);
    lig_store_close(store);
    model_fini(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(saved_and_loaded, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(loaded_from_the_disk, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(readers_share_the_buffers, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(saved_in_the_background, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(a_slice_is_filled, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(damage_is_found, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(a_failing_copy_fails_the_call, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(what_is_queued_is_saved, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
