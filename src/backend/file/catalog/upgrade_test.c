#include "file_volume.h"
#include "format_1.h"

#include <sys/resource.h>

enum { ITEMS = 300, LARGE = 5000 };

static void put_key(char key[16], size_t i)
{
    snprintf(key, 16, "key %03zu", i);
}

/* Values of 0 to 5000 bytes, so that some lie in overflow pages. */
static size_t fill(uint8_t *value, size_t i)
{
    size_t bytes = i * 7919 % LARGE;
    for (size_t at = 0; at < bytes; at++)
        value[at] = (uint8_t)(i + at * 3);
    return bytes;
}

static void make(const char *folder, size_t items)
{
    static uint8_t value[LARGE];
    char key[16];
    void *volume;

    assert_ok(open_at(folder, "fsync=0", &volume));
    for (size_t i = 0; i < items; i++) {
        put_key(key, i);
        const lig_catalog_op op = {key, strlen(key), value, fill(value, i)};
        assert_ok(commit_ops(OPS, volume, i, &op, 1));
    }
    close_at(volume);
    assert_int_equal(format_1_make(folder), 0);
}

static void compare(void *volume, size_t items)
{
    static uint8_t value[LARGE];
    void *snapshot;
    uint64_t version;
    lig_catalog_item item;
    char key[16];

    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_true(version >= items);
    for (size_t i = 0; i < items; i++) {
        put_key(key, i);
        assert_ok(OPS->catalog_get(snapshot, key, strlen(key), &item));
        assert_int_equal(item.value_bytes, fill(value, i));
        assert_memory_equal(item.value, value, item.value_bytes);
    }
    assert_status(OPS->catalog_get(snapshot, "key", 3, &item), LIG_E_NOTFOUND);
    OPS->catalog_end(snapshot);
}

static void assert_format(const char *folder, int format)
{
    char path[128], text[64] = "", wanted[64];
    snprintf(path, sizeof path, "%s/ligament", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    snprintf(wanted, sizeof wanted, "ligament store, format %d\n", format);
    assert_string_equal(text, wanted);
}

static void set_format(const char *folder, int format)
{
    char path[128];
    snprintf(path, sizeof path, "%s/ligament", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "ligament store, format %d\n", format);
    fclose(file);
}

/* Reading changes nothing; the version continues; a lost index is rebuilt. */
static void versions_continue(void **state)
{
    const char *folder = *state;
    char path[128];
    void *volume, *reader;

    make(folder, ITEMS);
    assert_ok(open_at(folder, "mode=r", &reader));
    compare(reader, ITEMS);
    assert_format(folder, 1);
    assert_ok(open_at(folder, "", &volume));
    assert_format(folder, 2);
    compare(volume, ITEMS);
    assert_int_equal(version_of(volume), ITEMS);
    assert_ok(commit_text(volume, ITEMS, "new", "value"));
    close_at(volume);
    snprintf(path, sizeof path, "%s/index.mdb", folder);
    assert_int_equal(unlink(path), 0);
    assert_ok(open_at(folder, "", &volume));
    compare(volume, ITEMS);
    assert_int_equal(version_of(volume), ITEMS + 1);
    close_at(volume);
    assert_int_equal(version_of(reader), ITEMS + 1); /* it goes on with the log */
    compare(reader, ITEMS);
    assert_ok(OPS->catalog_settle(reader));
    close_at(reader);
    assert_ok(open_at(folder, "mode=r", &reader));
    compare(reader, ITEMS);
    assert_int_equal(version_of(reader), ITEMS + 1);
    close_at(reader);
}

static void empty_and_missing_catalogs(void **state)
{
    const char *folder = *state;
    char path[128];
    void *volume;

    make(folder, 0);
    assert_ok(open_at(folder, "mode=r", &volume));
    assert_int_equal(version_of(volume), 0);
    close_at(volume);
    for (int i = 0; i < 2; i++) {
        assert_ok(open_at(folder, "", &volume));
        assert_format(folder, 2);
        assert_int_equal(version_of(volume), (unsigned)i);
        assert_ok(commit_text(volume, (unsigned)i, "k", "v"));
        close_at(volume);
    }
    snprintf(path, sizeof path, "cd '%s' && rm -r log *.mdb*", folder);
    assert_int_equal(system(path), 0);
    set_format(folder, 1);
    assert_ok(open_at(folder, "", &volume));
    assert_format(folder, 2);
    assert_int_equal(version_of(volume), 0);
    assert_ok(commit_text(volume, 0, "k", "v"));
    close_at(volume);
}

/* The marker is written last: killed before that, or restored by somebody. */
static void an_upgrade_is_finished(void **state)
{
    void *volume, *reader;

    make(*state, ITEMS);
    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, ITEMS, "new", "value"));
    close_at(volume);
    set_format(*state, 1);
    assert_ok(open_at(*state, "mode=r", &reader));
    assert_int_equal(version_of(reader), ITEMS + 1);
    close_at(reader);
    assert_format(*state, 1);
    assert_ok(open_at(*state, "", &volume));
    assert_format(*state, 2);
    assert_int_equal(version_of(volume), ITEMS + 1);
    close_at(volume);
}

/* A catalog of format 1 in a store of format 2 is ignored; one next to a log with commits and a
 * marker of format 1 is an error. */
static void catalogs_of_two_stores(void **state)
{
    const char *folder = *state;
    char command[512];
    void *volume;

    make(folder, ITEMS);
    snprintf(command, sizeof command, "cp '%s/catalog.mdb' '%s.kept'", folder, folder);
    assert_int_equal(system(command), 0);
    assert_ok(open_at(folder, "", &volume));
    assert_ok(commit_text(volume, ITEMS, "new", "value"));
    close_at(volume);
    snprintf(command, sizeof command, "cp '%s.kept' '%s/catalog.mdb'", folder, folder);
    assert_int_equal(system(command), 0);
    assert_ok(open_at(folder, "", &volume));
    assert_int_equal(version_of(volume), ITEMS + 1);
    close_at(volume);
    set_format(folder, 1);
    assert_status(open_at(folder, "", &volume), LIG_E_CORRUPT);
    assert_says("a log with commits");
    set_format(folder, 2);
    assert_ok(open_at(folder, "", &volume));
    compare(volume, ITEMS);
    close_at(volume);
}

static int flip_and_open(void *context)
{
    const char *folder = ((void **)context)[0];
    uint64_t random = (uint64_t)(uintptr_t)((void **)context)[1] * UINT64_C(0x9E3779B97F4A7C15);
    char path[128];
    struct stat info;
    void *volume;
    uint8_t byte;

    snprintf(path, sizeof path, "%s/catalog.mdb", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        return 90;
    off_t at = (off_t)(random >> 20) % info.st_size;
    at = (at & ~(off_t)4095) + at % (random >> 60 & 1 ? 4096 : 64);
    if (pread(fd, &byte, 1, at) != 1)
        return 91;
    byte ^= (uint8_t)(1u << (random & 7));
    if (pwrite(fd, &byte, 1, at) != 1)
        return 92;
    close(fd);
    lig_status status = open_at(folder, "fsync=0", &volume);
    if (status == LIG_OK)
        close_at(volume);
    return status == LIG_OK || status == LIG_E_CORRUPT ? 0 : 80;
}

/* Each in a separate process, so that a signal is detected. */
static void damaged_catalogs_are_refused(void **state)
{
    const char *folder = *state;
    char command[512];

    make(folder, ITEMS);
    snprintf(command, sizeof command, "cp -r '%s' '%s.kept'", folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "rm -r '%s' && cp -r '%s.kept' '%s'", folder, folder, folder);
    for (uintptr_t i = 1; i <= 60; i++) {
        void *context[2] = {*state, (void *)i};
        int code = child_run(flip_and_open, context);
        if (code != 0)
            fail_msg("flip %zu: %d", (size_t)i, code);
        assert_int_equal(system(command), 0);
    }
}

typedef struct limited_open {
    const char *folder;
    rlim_t bytes;
} limited_open;

/* A limit on the size of files is as good as a full disk. */
static int open_limited(void *context)
{
    const limited_open *self = context;
    struct rlimit limit = {self->bytes, self->bytes};
    void *volume;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 9;
    return open_at(self->folder, "", &volume) == LIG_OK ? 1 : 0;
}

static void fail_for_want_of_space(const char *folder, size_t items)
{
    const rlim_t limits[] = {0, 8192, 70000};
    char path[128];
    void *volume;

    make(folder, items);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        limited_open asked = {folder, limits[i]};
        assert_int_equal(child_run(open_limited, &asked), 0);
        snprintf(path, sizeof path, "%s/log", folder);
        assert_format(folder, 1);
        assert_int_equal(count_entries(path, "segment"), 0);
        assert_int_equal(count_entries(path, "checkpoint"), 0);
        assert_ok(open_at(folder, "mode=r", &volume));
        compare(volume, items);
        close_at(volume);
    }
    assert_ok(open_at(folder, "", &volume));
    assert_format(folder, 2);
    compare(volume, items);
    close_at(volume);
}

static void want_of_space_keeps_format_1(void **state)
{
    fail_for_want_of_space(*state, ITEMS);
}

static void want_of_space_for_a_segment(void **state)
{
    fail_for_want_of_space(*state, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(versions_continue),
        folder_test(empty_and_missing_catalogs),
        folder_test(an_upgrade_is_finished),
        folder_test(catalogs_of_two_stores),
        folder_test(damaged_catalogs_are_refused),
        folder_test(want_of_space_keeps_format_1),
        folder_test(want_of_space_for_a_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
