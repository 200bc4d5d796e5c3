/* The index always equals the log: random commits, compared with a simple map, while the index is
 * rebuilt, copied and replayed at any time. */
#include "backend/file/log/log_folder.h"
#include "faults/superfluous.h"
#include "file_volume.h"

enum { KEYS = 120, STEPS = 260, LARGE = 9000 };

typedef struct model_map { /* value n of a key is filled with a byte that follows from n */
    uint64_t number[KEYS];
    size_t bytes[KEYS];
    int there[KEYS];
} model_map;

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static size_t put_key(uint8_t key[64], size_t i)
{
    size_t bytes = 2 + i * 31 % 60;

    memset(key, (int)(i * 7), bytes);
    key[0] = (uint8_t)(1 + i % 5);
    key[1] = (uint8_t)i;
    return bytes;
}

static void fill(uint8_t *value, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        value[i] = (uint8_t)(number * 13 + i % 17);
}

/* Sizes around the limit above which a value is a reference. */
static size_t random_bytes(uint64_t *random)
{
    switch (next_random(random) % 4) {
    case 0: return next_random(random) % 8;
    case 1: return 1020 + next_random(random) % 8;
    case 2: return next_random(random) % LARGE;
    default: return next_random(random) % 300;
    }
}

static void commit_random(void *volume, model_map *map, uint64_t *random)
{
    static uint8_t values[12][LARGE];
    static uint8_t keys[12][64];
    lig_catalog_op ops[12];
    uint64_t version = version_of(volume);
    size_t count = next_random(random) % 12;

    for (size_t i = 0; i < count; i++) {
        size_t key = next_random(random) % KEYS;
        ops[i] = (lig_catalog_op){.key = keys[i], .key_bytes = put_key(keys[i], key)};
        map->there[key] = next_random(random) % 4 != 0;
        if (!map->there[key])
            continue;
        map->number[key] = next_random(random);
        map->bytes[key] = random_bytes(random);
        fill(values[i], map->number[key], map->bytes[key]);
        ops[i].value = values[i];
        ops[i].value_bytes = map->bytes[key];
    }
    assert_ok(commit_ops(OPS, volume, version, ops, count));
}

/* `old`: a large value may have been removed, which is reported. */
static void compare_snapshot(void *snapshot, const model_map *map, int old)
{
    static uint8_t value[LARGE];
    uint8_t key[66] = {0};
    size_t key_bytes = 1, wanted = 0, found = 0;
    lig_catalog_item item;

    for (size_t i = 0; i < KEYS; i++) {
        uint8_t name[64];
        size_t bytes = put_key(name, i);
        lig_status status = OPS->catalog_get(snapshot, name, bytes, &item);
        if (old && status == LIG_E_BUSY)
            continue;
        assert_int_equal(status, map->there[i] ? LIG_OK : LIG_E_NOTFOUND);
        if (!map->there[i])
            continue;
        fill(value, map->number[i], map->bytes[i]);
        assert_int_equal(item.value_bytes, map->bytes[i]);
        assert_memory_equal(item.value, value, item.value_bytes);
        wanted++;
    }
    while (!old && OPS->catalog_seek(snapshot, key, key_bytes, &item) == LIG_OK) {
        memcpy(key, item.key, item.key_bytes);
        key[item.key_bytes] = 0;
        key_bytes = item.key_bytes + 1;
        found++;
    }
    assert_int_equal(found, old ? 0 : wanted);
}

static void compare(void *volume, const model_map *map, uint64_t version)
{
    void *snapshot;
    uint64_t shown;

    assert_ok(OPS->catalog_begin(volume, &snapshot, &shown));
    assert_int_equal(shown, version);
    compare_snapshot(snapshot, map, 0);
    OPS->catalog_end(snapshot);
}

static void remove_index(const char *folder)
{
    char path[128];

    snprintf(path, sizeof path, "%s/index.mdb", folder);
    assert_int_equal(unlink(path), 0);
}

/* Opens it again, with the index as it was left or without. */
static void reopen(const char *folder, const char *options, void **volume, int lost)
{
    close_at(*volume);
    if (lost)
        remove_index(folder);
    assert_ok(open_at(folder, options, volume));
}

static void run(const char *folder, const char *options, uint64_t seed)
{
    static model_map map, kept;
    void *volume, *reader, *old = NULL;
    uint64_t random = seed, version;
    char log[128];

    snprintf(log, sizeof log, "%s/log", folder);
    memset(&map, 0, sizeof map);
    assert_ok(open_at(folder, options, &volume));
    assert_ok(open_at(folder, "mode=r", &reader));
    for (uint64_t step = 0; step < STEPS; step++) {
        commit_random(volume, &map, &random);
        superfluous_remove(log);
        uint64_t what = next_random(&random) % 40;
        if (what == 0 && old == NULL &&
            strstr(options, "map") == NULL) { /* it outlives checkpoints */
            kept = map;
            assert_ok(OPS->catalog_begin(volume, &old, &version));
        }
        if (what == 1 && old != NULL) {
            compare_snapshot(old, &kept, 1);
            OPS->catalog_end(old);
            old = NULL;
        }
        if (what < 4 && old == NULL)
            reopen(folder, options, &volume, what % 2);
        if (what < 8)
            compare(volume, &map, step + 1);
        if (what < 10)
            compare(reader, &map, step + 1);
    }
    if (old != NULL) {
        compare_snapshot(old, &kept, 1);
        OPS->catalog_end(old);
    }
    compare(volume, &map, STEPS);
    reopen(folder, options, &volume, 1);
    compare(volume, &map, STEPS);
    compare(reader, &map, STEPS);
    close_at(reader);
    close_at(volume);
}

/* A checkpoint every few commits: references into segments that are gone by then. */
static void checkpoints_all_the_time(void **state)
{
    char log[128];

    run(*state, "log=4KiB&fsync=0", 12345);
    snprintf(log, sizeof log, "%s/log", (char *)*state);
    assert_int_equal(count_entries(log, "checkpoint-"), 2);
}

/* The index is smaller than half of the log: it is copied. */
static void checkpoints_of_a_copy(void **state)
{
    char log[128];

    run(*state, "log=128KiB&fsync=0", 4321);
    snprintf(log, sizeof log, "%s/log", (char *)*state);
    assert_int_equal(count_entries(log, "checkpoint-"), 2);
}

static void no_checkpoints(void **state)
{
    char log[128];

    run(*state, "fsync=0", 777);
    snprintf(log, sizeof log, "%s/log", (char *)*state);
    assert_int_equal(count_entries(log, "checkpoint-"), 0);
}

static void small_maps_grow(void **state)
{
    run(*state, "log=40KiB&fsync=0&map=64KiB", 99);
}

/* With the newest checkpoint damaged the one before it, and the log behind it, make the same. */
static void the_checkpoint_before_does_too(void **state)
{
    static model_map map;
    const char *folder = *state;
    char command[256];
    uint64_t random = 5;
    void *volume;

    assert_ok(open_at(folder, "log=4KiB&fsync=0", &volume));
    for (int i = 0; i < 60; i++)
        commit_random(volume, &map, &random);
    close_at(volume);
    remove_index(folder);
    snprintf(command, sizeof command,
             "cd '%s/log' && dd if=/dev/zero of=$(ls checkpoint-* | tail -1) bs=1 seek=100 count=9 "
             "conv=notrunc status=none",
             folder);
    assert_int_equal(system(command), 0);
    assert_ok(open_at(folder, "mode=r", &volume));
    compare(volume, &map, 60);
    close_at(volume);
    assert_ok(open_at(folder, "", &volume));
    compare(volume, &map, 60);
    close_at(volume);
}

/* Flips a bit in the middle of the value, which is full of `byte`, wherever a checkpoint has it. */
static int damage_values(const char *log, uint8_t byte)
{
    static uint8_t data[1 << 20];
    uint8_t run[64];
    int damaged = 0;
    DIR *folder = opendir(log);

    memset(run, byte, sizeof run);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (superfluous_number(entry->d_name, LIGI_NAME_CHECKPOINT) == 0)
            continue;
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
        ssize_t bytes = pread(fd, data, sizeof data, 0);
        const uint8_t *found = bytes > 0 ? memmem(data, (size_t)bytes, run, sizeof run) : NULL;
        uint8_t other = byte ^ 4;
        if (found != NULL)
            damaged += pwrite(fd, &other, 1, found + 32 - data) == 1;
        close(fd);
    }
    closedir(folder);
    return damaged;
}

/* A value that only checkpoints hold, and hold damaged, is not a version that is no longer kept. */
static void damaged_checkpoints_are_called_so(void **state)
{
    static uint8_t value[5000];
    const lig_catalog_op op = {"key", 3, value, sizeof value};
    lig_catalog_item item;
    void *volume, *snapshot;
    uint64_t version;
    char log[128];

    snprintf(log, sizeof log, "%s/log", (char *)*state);
    assert_ok(open_at(*state, "log=4KiB&fsync=0", &volume));
    memset(value, 'k', sizeof value);
    assert_ok(commit_ops(OPS, volume, 0, &op, 1));
    memset(value, 'o', sizeof value);
    for (uint64_t i = 1; i < 20; i++) {
        const lig_catalog_op other = {&i, sizeof i, value, sizeof value};
        assert_ok(commit_ops(OPS, volume, i, &other, 1));
    }
    close_at(volume);
    superfluous_remove(log);
    assert_true(damage_values(log, 'k') > 0);
    assert_ok(open_at(*state, "log=4KiB&fsync=0", &volume));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_status(OPS->catalog_get(snapshot, "key", 3, &item), LIG_E_CORRUPT);
    assert_non_null(strstr(lig_error_text(), "damaged checkpoint"));
    OPS->catalog_end(snapshot);
    close_at(volume);
}

static void flip_in_segment(const char *folder, off_t at)
{
    char path[128];
    uint8_t byte;

    snprintf(path, sizeof path, "%s/log/segment-0000000000000001", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Nothing was synced and the head is lost, so that no witness tells of the records behind the
 * damage. */
static void records_outlive_their_segments_header(void **state)
{
    char path[128];
    void *volume;

    assert_ok(open_at(*state, "fsync=0", &volume));
    assert_ok(commit_text(volume, 0, "one", "1"));
    assert_ok(commit_text(volume, 1, "two", "2"));
    close_at(volume);
    remove_index(*state);
    snprintf(path, sizeof path, "%s/log/head", (char *)*state);
    assert_int_equal(unlink(path), 0);
    flip_in_segment(*state, 20);
    assert_ok(open_at(*state, "mode=r", &volume));
    assert_int_equal(version_of(volume), 2);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_int_equal(version_of(volume), 2);
    close_at(volume);
}

/* Nothing was synced, but the head says that the last record was written. */
static void a_damaged_last_record_is_noticed(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "fsync=0", &volume));
    assert_ok(commit_text(volume, 0, "one", "1"));
    close_at(volume);
    remove_index(*state);
    flip_in_segment(*state, LIGI_SEGMENT_HEADER_BYTES + 20);
    assert_ok(open_at(*state, "fsync=0", &volume));
    assert_status(commit_text(volume, version_of(volume), "two", "2"), LIG_E_CORRUPT);
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(checkpoints_all_the_time),
        folder_test(checkpoints_of_a_copy),
        folder_test(no_checkpoints),
        folder_test(small_maps_grow),
        folder_test(the_checkpoint_before_does_too),
        folder_test(damaged_checkpoints_are_called_so),
        folder_test(records_outlive_their_segments_header),
        folder_test(a_damaged_last_record_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
