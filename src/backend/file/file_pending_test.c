/* Commits that are made durable later: catalog_sync of the file volume. */
#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/file.h"
#include "file_volume.h"

#include <sys/wait.h>

static ligi_head *head_of(void *volume)
{
    return &((ligi_file *)volume)->catalog->log.head;
}

static void put(void *volume, uint64_t version, lig_catalog_pending *pending)
{
    const lig_catalog_op op = {&version, sizeof version, "value", 5};
    const lig_catalog_edit edit = {
        .version = version, .ops = &op, .op_count = 1, .pending = pending};

    assert_ok(OPS->catalog_commit(volume, &edit));
}

static int has(const char *folder, uint64_t version)
{
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t now;

    assert_ok(open_at(folder, "mode=r", &volume));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &now));
    lig_status status = OPS->catalog_get(snapshot, &version, sizeof version, &item);
    OPS->catalog_end(snapshot);
    close_at(volume);
    return status == LIG_OK;
}

static void one_sync_for_many(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, 0, NULL);
    assert_int_equal(ligi_head_synced(head_of(volume)), 1);
    for (uint64_t version = 1; version < 9; version++)
        put(volume, version, &pending);
    assert_int_equal(pending.version, 9);
    assert_int_equal(ligi_head_synced(head_of(volume)), 1);
    assert_ok(OPS->catalog_sync(volume, &pending));
    assert_int_equal(ligi_head_synced(head_of(volume)), 9);
    assert_true(pending.version == 0 && pending.held == NULL);
    assert_ok(OPS->catalog_sync(volume, &pending));
    close_at(volume);
    assert_true(has(*state, 8));
}

/* What is shown is durable, whoever was going to sync it. */
static void a_snapshot_makes_it_durable(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, 0, &pending);
    assert_true(ligi_head_synced(head_of(volume)) < 1);
    assert_int_equal(version_of(volume), 1);
    assert_int_equal(ligi_head_synced(head_of(volume)), 1);
    assert_ok(OPS->catalog_sync(volume, &pending));
    close_at(volume);
}

/* Another process may have failed to sync the first commit, before the last was made. */
static void the_oldest_commit_counts(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, 0, NULL);
    put(volume, 1, &pending);
    assert_ok(OPS->catalog_lock(volume, 0));
    ligi_head_epoch_next(head_of(volume), 1, 0);
    OPS->catalog_unlock(volume);
    put(volume, 2, &pending);
    assert_status(OPS->catalog_sync(volume, &pending), LIG_E_IO);
    assert_says("whether the commit took effect is unknown");
    assert_int_equal(pending.version, 0);
    close_at(volume);
}

/* A sync that failed without a loss: the commits are written again. */
static void a_failed_sync_is_repaired(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, 0, NULL);
    put(volume, 1, &pending);
    put(volume, 2, &pending);
    uint32_t epoch = ligi_head_epoch(head_of(volume));
    ligi_head_poison(head_of(volume), ligi_head_segment(head_of(volume)));
    assert_ok(OPS->catalog_sync(volume, &pending));
    assert_true(ligi_head_epoch(head_of(volume)) > epoch);
    assert_int_equal(ligi_head_synced(head_of(volume)), 3);
    close_at(volume);
    assert_true(has(*state, 2));
}

static void nothing_is_synced_with_fsync_0(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;

    assert_ok(open_at(*state, "fsync=0", &volume));
    put(volume, 0, &pending);
    assert_ok(OPS->catalog_sync(volume, &pending));
    assert_int_equal(pending.version, 0);
    close_at(volume);
    assert_true(has(*state, 0));
}

static void nothing_is_pending_in_a_forked_child(void **state)
{
    lig_catalog_pending pending = {0};
    void *volume;
    int result;

    assert_ok(open_at(*state, "", &volume));
    put(volume, 0, &pending);
    pid_t child = fork();
    if (child == 0)
        _exit(OPS->catalog_sync(volume, &pending) != LIG_E_CLOSED || pending.version != 0 ||
              pending.held != NULL);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_ok(OPS->catalog_sync(volume, &pending));
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(one_sync_for_many),
        folder_test(a_snapshot_makes_it_durable),
        folder_test(the_oldest_commit_counts),
        folder_test(a_failed_sync_is_repaired),
        folder_test(nothing_is_synced_with_fsync_0),
        folder_test(nothing_is_pending_in_a_forked_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
