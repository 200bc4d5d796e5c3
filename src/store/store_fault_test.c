#include "store_numbers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { KILLS = 50 };

/* --- a kill at any point --- */

static void save_for_ever(const char *uri, int out, uint64_t first)
{
    lig_store *store;
    if (lig_store_open(&store, uri) != LIG_OK)
        _exit(1);
    for (uint64_t number = first;; number++) {
        char name[2] = {(char)('a' + number % 3), '\0'};
        if (save_number(store, name, number) != LIG_OK ||
            write(out, &number, sizeof number) != sizeof number)
            _exit(2);
        if (number % 7 == 0 && lig_store_retire(store, name) != LIG_OK)
            _exit(3);
    }
}

static void test_kill(void **state)
{
    scene *places = *state;
    uint64_t seed = 1, first = 1, acknowledged[3] = {0};
    for (int round = 0; round < KILLS; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            save_for_ever(places->file, ends[1], first);
        }
        close(ends[1]);
        poll(NULL, 0, 5 + (int)(scene_random(&seed) % 60));
        kill(child, SIGKILL);
        int ended;
        waitpid(child, &ended, 0);
        assert_true(WIFSIGNALED(ended));
        uint64_t number;
        while (read(ends[0], &number, sizeof number) == sizeof number) {
            acknowledged[number % 3] = number;
            first = number + 1;
        }
        close(ends[0]);
        first += 10; /* what was under way has a number of its own */

        lig_store *store = opened(places->file);
        lig_model **models;
        size_t count;
        check_sound(store);
        assert_ok(lig_store_models(store, NULL, &models, &count));
        for (size_t i = 0; i < count; i++) {
            uint64_t found = check_number(store, models[i]->name);
            assert_true(found >= acknowledged[found % 3]);
        }
        lig_models_destroy(models, count);
        for (int i = 0; i < 3; i++) {
            char name[2] = {(char)('a' + i), '\0'};
            lig_model *model;
            if (acknowledged[i] == 0 || acknowledged[i] % 7 == 0)
                continue;
            lig_status status = lig_store_model(store, name, &model);
            if (status == LIG_OK)
                lig_model_destroy(model);
            else /* the one that came after it may have been retired at once */
                assert_int_equal((acknowledged[i] + 3) % 7, 0);
        }
        lig_store_stats stats;
        assert_ok(lig_store_stat(store, &stats));
        assert_int_equal(count_files(places->folder), stats.packs);
        lig_store_close(store);
    }
}

/* --- a medium that is full --- */

static void test_full(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    assert_ok(save_number(store, "before", 2));
    lig_store_close(store);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {300000, 300000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        if (lig_store_open(&store, places->file) != LIG_OK)
            _exit(10);
        int64_t length = LENGTH;
        lig_tensor tensor = scene_tensor("big", values[0], &length);
        lig_status status = lig_store_save(store, "m", &tensor, 1, NULL);
        if (status != LIG_E_IO || lig_error_number() == 0)
            _exit(20 + (int)status);
        lig_model *model;
        if (lig_store_model(store, "m", &model) != LIG_E_NOTFOUND)
            _exit(11);
        length = 10;
        tensor = scene_tensor("little", values[0], &length);
        if (lig_store_save(store, "little", &tensor, 1, NULL) != LIG_OK)
            _exit(12);
        lig_store_close(store);
        _exit(0);
    }
    int ended;
    waitpid(child, &ended, 0);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
    store = opened(places->file);
    check_sound(store);
    assert_int_equal(check_number(store, "before"), 2);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(count_files(places->folder), stats.packs);
    lig_store_close(store);
}

/* --- damage --- */

static void pack_path(const char *folder, uint64_t pack, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/store/packs/%016llx.pack", folder, (unsigned long long)pack);
}

static void flip(const char *path, off_t at)
{
    int file = open(path, O_RDWR);
    uint8_t byte;
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
}

/* Where a text stands last in a file. */
static off_t find_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "rb");
    struct stat facts;
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &facts), 0);
    char *data = malloc((size_t)facts.st_size);
    assert_int_equal(fread(data, 1, (size_t)facts.st_size, file), facts.st_size);
    fclose(file);
    off_t at = facts.st_size - (off_t)strlen(text);
    while (at > 0 && memcmp(data + at, text, strlen(text)) != 0)
        at--;
    free(data);
    return at;
}

static void test_flip(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    int64_t length = LENGTH, other = 50;
    lig_tensor tensors[2] = {scene_tensor("broken", values[0], &length),
                             scene_tensor("whole", values[1], &other)};
    assert_ok(lig_store_save(store, "m", tensors, 2, NULL));
    scene_fill(values[0], sizeof values[0], 79); /* or the two would share it */
    assert_ok(lig_store_save(store, "n", tensors, 2, NULL));
    lig_model *model;
    assert_ok(lig_store_model(store, "m", &model));
    char path[256];
    pack_path(places->folder, model->tensors[0].pack, path, sizeof path);
    off_t at = (off_t)model->tensors[0].offset + 1200000;
    lig_model_destroy(model);
    flip(path, at);
    assert_fails(lig_store_load(store, "m", tensors, 1), LIG_E_CORRUPT);
    assert_non_null(strstr(lig_error_text(), "'broken'"));
    assert_non_null(strstr(lig_error_text(), "'m'"));
    assert_ok(lig_store_load(store, "m", tensors + 1, 1));
    lig_view *view;
    assert_fails(lig_store_map(store, "m", 0, &view), LIG_E_CORRUPT);
    assert_non_null(strstr(lig_error_text(), "'broken'"));
    assert_ok(lig_store_map(store, "m", LIG_READ_UNVERIFIED, &view));
    lig_view_destroy(view);
    lig_store *copy = opened("mem:");
    assert_fails(lig_store_copy(store, "m", copy, NULL, 0), LIG_E_CORRUPT);
    lig_store_close(copy);
    lig_slice good = {0, 1, 1000}, bad = {300000, 1, 10};
    int64_t part = 1000;
    lig_read read = {.name = "broken", .into = scene_tensor("p", reads[0], &part), .slices = &good};
    assert_ok(lig_store_read(store, "m", &read, 1, 0));
    part = 10;
    read.into = scene_tensor("p", reads[0], &part);
    read.slices = &bad;
    assert_fails(lig_store_read(store, "m", &read, 1, 0), LIG_E_CORRUPT);
    assert_ok(lig_store_read(store, "m", &read, 1, LIG_READ_UNVERIFIED));
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 1);
    assert_non_null(strstr(report->problems[0], "'broken'"));
    lig_report_destroy(report);
    flip(path, at);
    check_sound(store);
    flip(path, find_text(path, "whole")); /* a name in the footer */
    assert_fails(lig_store_load(store, "m", tensors, 1), LIG_E_CORRUPT);
    assert_ok(lig_store_load(store, "n", tensors, 1));
    assert_int_equal(truncate(path, 5000), 0);
    assert_fails(lig_store_load(store, "m", tensors, 1), LIG_E_CORRUPT);
    assert_int_equal(unlink(path), 0);
    assert_fails(lig_store_load(store, "m", tensors, 1), LIG_E_CORRUPT);
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 1);
    lig_report_destroy(report);
    assert_ok(lig_store_retire(store, "m"));
    check_sound(store);
    lig_store_close(store);
}

/* Every byte of a small pack's footer, trailer and header, one after the other. */
static void test_rebuild_from_damage(void **state)
{
    scene *places = *state;
    lig_store *store = opened(places->file);
    int64_t length = 20000;
    lig_tensor tensor = scene_tensor("t", values[0], &length);
    assert_ok(lig_store_save(store, "m", &tensor, 1, NULL));
    lig_model *model;
    assert_ok(lig_store_model(store, "m", &model));
    char path[256], command[512];
    pack_path(places->folder, model->tensors[0].pack, path, sizeof path);
    lig_model_destroy(model);
    lig_store_close(store);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    snprintf(command, sizeof command, "rm -r '%s'/store/log '%s'/store/index*", places->folder,
             places->folder);
    for (off_t at = 0; at < facts.st_size; at += at == 230 ? 4080 - 230 : at == 4100 ? 79990 : 1) {
        flip(path, at);
        assert_int_equal(system(command), 0);
        lig_status status = lig_store_open(&store, places->file);
        if (status == LIG_OK) {
            (void)lig_store_load(store, "m", &tensor, 1);
            lig_store_close(store);
        }
        flip(path, at);
    }
    assert_int_equal(system(command), 0);
    store = opened(places->file);
    assert_ok(lig_store_load(store, "m", &tensor, 1));
    scene_lost(store, LIG_CHECK_REPAIR);
    check_sound(store);
    lig_store_close(store);
}

static void test_rebuild(void **state)
{
    scene *places = *state;
    char command[512];
    lig_store *store = opened(places->file);
    int64_t length = LENGTH;
    lig_tensor tensor = scene_tensor("t", values[0], &length);
    scene_fill(values[0], sizeof values[0], 77);
    lig_metric metric = {"acc", .5};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = &metric, options.metric_count = 1;
    assert_ok(lig_store_save(store, "a", &tensor, 1, &options));
    lig_update update = LIG_UPDATE_INIT;
    update.name = "b";
    assert_ok(lig_store_update(store, "a", &update));
    scene_fill(values[1], sizeof values[1], 78); /* what is shared alone would lie in the catalog */
    tensor.data = values[1];
    assert_ok(lig_store_save(store, "a", &tensor, 1, &options));
    lig_store_close(store);
    snprintf(command, sizeof command, "rm -r '%s'/store/log '%s'/store/index*", places->folder,
             places->folder);
    assert_int_equal(system(command), 0);
    char reading[160];
    snprintf(reading, sizeof reading, "%s?mode=r", places->file);
    for (int again = 0; again < 2; again++) {
        lig_model **models;
        size_t count;
        lig_status status = lig_store_open(&store, again ? places->file : reading);
        assert_ok(status);
        assert_ok(lig_store_models(store, NULL, &models, &count));
        assert_int_equal(count, again ? 2 : 1); /* readers see the newest of a name */
        assert_string_equal(models[count - 1]->name, "a");
        assert_true(models[0]->metrics[0].value == .5);
        for (size_t i = 0; i < count; i++) {
            tensor.data = reads[0];
            memset(reads[0], 0, sizeof reads[0]);
            assert_ok(lig_store_load(store, models[i]->name, &tensor, 1));
            int newest = i == count - 1;
            assert_memory_equal(reads[0], values[newest], sizeof reads[0]);
        }
        lig_models_destroy(models, count);
        scene_lost(store, again ? LIG_CHECK_REPAIR : 0);
        if (again) { /* ids go on where they were */
            tensor.data = values[0];
            assert_ok(lig_store_save(store, "c", &tensor, 1, NULL));
            check_sound(store);
        }
        lig_store_close(store);
    }
}

/* The index alone is made from the log again: nothing is lost, not even a model in the catalog. */
static void test_lost_index(void **state)
{
    scene *places = *state;
    char command[512], uri[160];
    lig_store *store = opened(places->file);
    assert_ok(save_number(store, "a", 1));
    assert_ok(save_number(store, "b", 2));
    assert_ok(lig_store_alias(store, "best", "b"));
    lig_store_close(store);
    snprintf(command, sizeof command, "rm '%s'/store/index*", places->folder);
    assert_int_equal(system(command), 0);
    for (int again = 0; again < 2; again++) {
        snprintf(uri, sizeof uri, "%s%s", places->file, again ? "" : "?mode=r");
        store = opened(uri);
        assert_int_equal(check_number(store, "a"), 1);
        assert_int_equal(check_number(store, "best"), 2);
        check_sound(store);
        lig_store_close(store);
    }
}

/* Readers of a store that hosts share see what comes and goes. */
static void test_network(void **state)
{
    scene *places = *state;
    char writing[320], reading[192];
    snprintf(writing, sizeof writing, "%s?share=network&index=%s-index", places->file,
             places->file + strlen("file://"));
    snprintf(reading, sizeof reading, "%s?share=network&mode=r", places->file);
    lig_store *writer = opened(writing), *reader = opened(reading);
    lig_model *model;
    assert_fails(lig_store_model(reader, "a", &model), LIG_E_NOTFOUND);
    for (uint64_t number = 1; number < 20; number++) {
        char name[2] = {(char)('a' + number % 4), '\0'};
        assert_ok(save_number(writer, name, number));
        assert_int_equal(check_number(reader, name), number);
    }
    assert_ok(lig_store_retire(writer, "b"));
    assert_fails(lig_store_model(reader, "b", &model), LIG_E_NOTFOUND);
    lig_model **models;
    size_t count;
    assert_ok(lig_store_models(reader, NULL, &models, &count));
    assert_int_equal(count, 3);
    lig_models_destroy(models, count);
    assert_fails(save_number(reader, "x", 1), LIG_E_DENIED);
    check_sound(writer);
    check_sound(reader);
    lig_store_close(writer);
    assert_int_equal(check_number(reader, "c"), 18);
    lig_store_close(reader);
}

/* A pack of another store among ours is neither shown nor removed. */
static void test_foreign(void **state)
{
    scene *places = *state;
    char other[160], command[512];
    snprintf(other, sizeof other, "file://%s/other", places->folder);
    lig_store *store = opened(other);
    int64_t length = LENGTH;
    lig_tensor tensor = scene_tensor("t", values[0], &length);
    assert_ok(lig_store_save(store, "foreign", &tensor, 1, NULL));
    lig_store_close(store);
    store = opened(places->file);
    assert_ok(lig_store_save(store, "ours", &tensor, 1, NULL));
    lig_store_close(store);
    snprintf(command, sizeof command, "cp '%s'/other/packs/*.pack '%s'/store/packs/",
             places->folder, places->folder);
    assert_int_equal(system(command), 0);
    store = opened(places->file);
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    assert_int_equal(count_files(places->folder), 2);
    assert_ok(lig_store_check(store, LIG_CHECK_REPAIR, &report));
    assert_int_equal(report->problem_count, 1);
    lig_report_destroy(report);
    lig_store_close(store);
}

int main(void)
{
    lig_log_set(store_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kill, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_full, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_flip, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_lost_index, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild_from_damage, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_network, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_foreign, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
