#include "file_volume.h"

#define WIDE 60

/* Writes the same number under all keys, again and again. */
static int write_for_ever(void *context)
{
    static uint64_t values[WIDE][300];
    lig_catalog_op ops[WIDE];
    char keys[WIDE][8];
    void *volume;

    if (open_at(context, "", &volume) != LIG_OK)
        return 1;
    for (uint64_t version = version_of(volume);; version++) {
        for (size_t i = 0; i < WIDE; i++) {
            snprintf(keys[i], sizeof keys[i], "%zu", i);
            values[i][0] = values[i][299] = version;
            ops[i] = (lig_catalog_op){keys[i], strlen(keys[i]), values[i], sizeof values[i]};
        }
        if (commit_ops(OPS, volume, version, ops, WIDE) != LIG_OK)
            return 2;
    }
}

static void compare_wide(void *snapshot, uint64_t version)
{
    for (size_t i = 0; i < WIDE; i++) {
        lig_catalog_item item;
        uint64_t value[300];
        char key[8];
        snprintf(key, sizeof key, "%zu", i);
        assert_ok(OPS->catalog_get(snapshot, key, strlen(key), &item));
        assert_int_equal(item.value_bytes, sizeof value);
        memcpy(value, item.value, sizeof value);
        assert_int_equal(value[0], version - 1);
        assert_int_equal(value[299], version - 1);
    }
}

/* A reader's copy shows one state, however fast it changes. */
static void copies_are_consistent(void **state)
{
    void *volume, *snapshot;
    uint64_t version, last = 0;
    int moved = 0;

    assert_ok(open_at(*state, "fsync=0", &volume));
    close_at(volume);
    pid_t child = child_fork();
    if (child == 0)
        _exit(write_for_ever(*state));
    assert_ok(open_at(*state, "mode=r", &volume));
    for (int i = 0; i < 100000 && moved < 60; i++) {
        lig_status status = OPS->catalog_begin(volume, &snapshot, &version);
        if (status == LIG_E_BUSY)
            continue;
        assert_ok(status);
        assert_true(version >= last);
        if (version > 0)
            compare_wide(snapshot, version);
        OPS->catalog_end(snapshot);
        moved += version != last;
        last = version;
    }
    child_kill(child);
    close_at(volume);
    assert_int_equal(moved, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {folder_test(copies_are_consistent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
