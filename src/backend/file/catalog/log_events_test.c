#include "file_volume.h"

/* One event, and enough other data that each commit begins a new segment if the log is small. */
static void commit_event(void *volume, uint64_t version)
{
    static const uint8_t value[5000];
    const lig_catalog_op op = {"key", 3, value, sizeof value};
    const lig_catalog_event event = {&version, sizeof version};
    const lig_catalog_edit edit = {
        .version = version, .ops = &op, .op_count = 1, .events = &event, .event_count = 1};

    assert_ok(OPS->catalog_commit(volume, &edit));
}

typedef struct seen_events {
    uint64_t first, last, count;
    uint64_t most; /* after which the visit ends */
} seen_events;

static int see_event(void *context, uint64_t version, int64_t date_ns, const void *data,
                     size_t bytes)
{
    seen_events *seen = context;

    (void)date_ns, (void)data, (void)bytes;
    seen->first = seen->count++ == 0 ? version : seen->first;
    seen->last = version;
    return seen->count == seen->most;
}

/* Removes the segments that begin below `number`, as checkpoints do. */
static void remove_segments(const char *folder, uint64_t number)
{
    char path[FOLDER_BYTES + 64];

    for (uint64_t i = 1; i < number; i++) {
        snprintf(path, sizeof path, "%s/log/segment-%016llx", folder, (unsigned long long)i);
        (void)unlink(path);
    }
}

/* A watcher that falls behind gets an error that says so; the log is not reported as damaged. */
static void fell_behind(const char *folder, const char *options)
{
    void *volume, *watcher;

    assert_ok(open_at(folder, "log=4KiB&fsync=0", &volume));
    for (uint64_t version = 0; version < 4; version++)
        commit_event(volume, version);
    assert_ok(open_at(folder, options, &watcher));
    seen_events seen = {.most = 1};
    assert_ok(OPS->catalog_events(watcher, 0, see_event, &seen));
    assert_int_equal(seen.last, 1);
    for (uint64_t version = 4; version < 20; version++)
        commit_event(volume, version);
    remove_segments(folder, 15);
    assert_status(OPS->catalog_events(watcher, 1, see_event, &seen), LIG_E_NOTFOUND);
    assert_non_null(strstr(lig_error_text(), "no longer in the log"));
    seen = (seen_events){0};
    assert_ok(OPS->catalog_events(watcher, 14, see_event, &seen));
    assert_int_equal(seen.first, 15);
    assert_int_equal(seen.count, 6);
    close_at(watcher);
    close_at(volume);
}

static void watchers_fall_behind(void **state)
{
    fell_behind(*state, "fsync=0");
}

static void readers_fall_behind(void **state)
{
    fell_behind(*state, "mode=r");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(watchers_fall_behind),
        folder_test(readers_fall_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
