/* A failed write of a meta page of the index: LMDB then refuses every transaction until it is
 * opened again. The log has the commit, and the handle is usable for all threads and processes. */
#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/file.h"
#include "file_volume.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { META_BYTES_MOST = 4096, META_END = 12288, THREADS = 4, COMMITS = 60, FAILURE_PERIOD = 7 };

/* --- writes that fail --- */

static atomic_int failing;     /* so many writes of meta pages fail, */
static atomic_uint period;     /* or every one of so many (0: none) */
static atomic_uint seen;       /* counts them for the period */
static atomic_int failure;     /* an error number; 0: the write is cut short */
static atomic_uint failed;     /* writes */
static atomic_uint reopenings; /* according to the log */

static int is_index(int fd)
{
    static const char name[] = "/index.mdb";
    char link[32], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path);
    return bytes >= (ssize_t)sizeof name - 1 &&
           memcmp(path + bytes - (sizeof name - 1), name, sizeof name - 1) == 0;
}

static int is_due(void)
{
    unsigned every = atomic_load(&period);

    if (every != 0 && atomic_fetch_add(&seen, 1) % every == every - 1)
        return 1;
    return atomic_load(&failing) > 0 && atomic_fetch_sub(&failing, 1) > 0;
}

/* Takes the place of the C library's, also for LMDB. */
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    int armed = atomic_load(&failing) > 0 || atomic_load(&period) != 0;

    if (!armed || bytes >= META_BYTES_MOST || at >= META_END || !is_index(fd) || !is_due())
        return syscall(SYS_pwrite64, fd, data, bytes, at);
    atomic_fetch_add(&failed, 1);
    if (atomic_load(&failure) == 0)
        return syscall(SYS_pwrite64, fd, data, bytes / 2, at);
    errno = atomic_load(&failure);
    return -1;
}

static atomic_int interrupted; /* 1: the next sync is, after such a write; 2: it has begun */

int fdatasync(int fd)
{
    int armed = 1;

    if (!atomic_compare_exchange_strong(&interrupted, &armed, 2))
        return (int)syscall(SYS_fdatasync, fd);
    while (atomic_load(&failing) > 0)
        sched_yield();
    errno = EINTR;
    return -1;
}

static void fail_writes(int count, int number)
{
    atomic_store(&failure, number);
    atomic_store(&failing, count);
}

static void count_reopenings(void *context, lig_log_level level, const char *text)
{
    (void)context, (void)level;
    if (strstr(text, "opened again") != NULL)
        atomic_fetch_add(&reopenings, 1);
}

static struct rlimit files;

static int set_up(void **state)
{
    fail_writes(0, 0);
    atomic_store(&interrupted, 0);
    atomic_store(&period, 0);
    atomic_store(&failed, 0);
    atomic_store(&reopenings, 0);
    lig_log_set(count_reopenings, NULL);
    return getrlimit(RLIMIT_NOFILE, &files) ? -1 : folder_setup(state);
}

static int tear_down(void **state)
{
    lig_log_set(NULL, NULL);
    return setrlimit(RLIMIT_NOFILE, &files) ? -1 : folder_teardown(state);
}

/* --- one thread --- */

static void assert_value(void *volume, const char *key, const char *value)
{
    void *snapshot;
    uint64_t version;
    lig_catalog_item item;

    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_ok(OPS->catalog_get(snapshot, key, strlen(key), &item));
    assert_int_equal(item.value_bytes, strlen(value));
    assert_memory_equal(item.value, value, item.value_bytes);
    OPS->catalog_end(snapshot);
}

static void try_failure(const char *folder, const char *options, int count, int number)
{
    void *volume, *other;

    assert_ok(open_at(folder, options, &volume));
    uint64_t version = version_of(volume);
    assert_ok(commit_text(volume, version, "k", "before"));
    fail_writes(count, number);
    assert_ok(commit_text(volume, version + 1, "k", "failed")); /* its record is in the log */
    assert_int_equal(atomic_load(&failing), 0);
    assert_value(volume, "k", "failed"); /* a reader recovers */
    assert_int_equal(version_of(volume), version + 2);
    assert_ok(commit_text(volume, version + 2, "k", "after"));
    fail_writes(count, number);
    assert_ok(commit_text(volume, version + 3, "k", "failed"));
    assert_ok(commit_text(volume, version + 4, "k", "after")); /* a writer recovers */
    assert_ok(open_at(folder, options, &other));
    assert_value(other, "k", "after");
    close_at(other);
    fail_writes(count, number);
    assert_ok(commit_text(volume, version + 5, "k", "last"));
    close_at(volume);
    assert_int_equal(atomic_load(&failing), 0);
    assert_ok(open_at(folder, options, &volume));
    assert_value(volume, "k", "last");
    close_at(volume);
}

static void commits_outlive_failed_writes(void **state)
{
    const char *folder = *state;
    char options[160];

    try_failure(folder, "", 1, EIO);
    try_failure(folder, "", 1, ENOSPC);
    try_failure(folder, "fsync=0", 2, EIO); /* the old page is not written back, either */
    try_failure(folder, "", 1, 0);
    try_failure(folder, "", 2, 0);
    assert_int_equal(atomic_load(&reopenings), 10);
    snprintf(options, sizeof options, "share=network&index=%s-index", folder);
    try_failure(folder, options, 1, EIO);
    assert_int_equal(atomic_load(&reopenings), 12);
}

/* The next request tries again. */
static void failed_reopenings_are_repeated(void **state)
{
    const char *folder = *state;
    struct rlimit tight = files;
    char path[128], aside[128];
    void *volume, *snapshot;
    uint64_t version;

    assert_ok(open_at(folder, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    fail_writes(1, EIO);
    assert_ok(commit_text(volume, 1, "k", "w"));
    tight.rlim_cur = 3; /* open files stay open */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (int i = 0; i < 3; i++) {
        assert_status(OPS->catalog_begin(volume, &snapshot, &version), LIG_E_IO);
        assert_says("Too many open files");
        assert_status(commit_text(volume, 2, "k", "x"), LIG_E_IO);
        assert_says("Too many open files");
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(path, sizeof path, "%s/index.mdb", folder);
    snprintf(aside, sizeof aside, "%s/aside", folder);
    assert_int_equal(rename(path, aside), 0);
    assert_status(OPS->catalog_begin(volume, &snapshot, &version), LIG_E_IO);
    assert_says("was removed while the store was open");
    assert_int_equal(access(path, F_OK), -1); /* it is not replaced by an empty one */
    assert_int_equal(rename(aside, path), 0);
    assert_ok(commit_text(volume, 2, "k", "x"));
    assert_value(volume, "k", "x");
    close_at(volume);
}

/* --- several threads and processes --- */

static void *look(void *volume)
{
    void *snapshot;
    uint64_t version = 0;

    if (OPS->catalog_begin(volume, &snapshot, &version) == LIG_OK)
        OPS->catalog_end(snapshot);
    return (void *)(uintptr_t)version;
}

static int is_alone(ligi_file_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    int alone = catalog->alone;
    pthread_mutex_unlock(&catalog->lock);
    return alone;
}

/* Closing the environment would take the snapshot's pages away. */
static void snapshots_end_first(void **state)
{
    void *volume, *snapshot, *seen_version;
    lig_catalog_item item;
    uint64_t version;
    pthread_t reader;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    fail_writes(1, EIO);
    assert_ok(commit_text(volume, 1, "k", "w"));
    assert_int_equal(pthread_create(&reader, NULL, look, volume), 0);
    while (!is_alone(((ligi_file *)volume)->catalog))
        sched_yield();
    assert_ok(OPS->catalog_get(snapshot, "k", 1, &item));
    assert_memory_equal(item.value, "v", 1);
    OPS->catalog_end(snapshot);
    assert_int_equal(pthread_join(reader, &seen_version), 0);
    assert_int_equal((uintptr_t)seen_version, 2);
    close_at(volume);
}

/* A reader whose sync has to be repeated writes to the log, and may open the index again for that:
 * not while it has a snapshot of its own. */
static void syncs_are_repeated_without_a_snapshot(void **state)
{
    void *volume, *synced, *seen_version;
    pthread_t reader;

    assert_ok(open_at(*state, "fsync=0", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_ok(open_at(*state, "", &synced)); /* from now on, readers sync what they show */
    fail_writes(1, EIO);
    atomic_store(&interrupted, 1);
    assert_int_equal(pthread_create(&reader, NULL, look, volume), 0);
    while (atomic_load(&interrupted) != 2)
        sched_yield();
    assert_ok(commit_text(synced, 1, "k", "w"));
    assert_int_equal(pthread_join(reader, &seen_version), 0);
    assert_int_equal((uintptr_t)seen_version, 2);
    assert_int_equal(atomic_load(&reopenings), 1);
    close_at(synced);
    close_at(volume);
}

/* Adds one to both numbers, under the version that it has seen. */
static lig_status add_one(void *volume)
{
    uint64_t version, numbers[2] = {0};
    lig_catalog_item item;
    void *snapshot;

    LIG_TRY(OPS->catalog_begin(volume, &snapshot, &version));
    for (int i = 0; i < 2; i++)
        if (OPS->catalog_get(snapshot, i == 0 ? "a" : "b", 1, &item) == LIG_OK)
            memcpy(&numbers[i], item.value, sizeof numbers[i]);
    OPS->catalog_end(snapshot);
    if (numbers[0] != numbers[1])
        return LIG_E_CORRUPT;
    numbers[0]++;
    const lig_catalog_op ops[] = {{"a", 1, numbers, 8}, {"b", 1, numbers, 8}};
    return commit_ops(OPS, volume, version, ops, 2);
}

/* A write that brings the index up to date may fail; then nothing was committed. */
static void *count_up(void *volume)
{
    for (int done = 0; done < COMMITS;) {
        lig_status status = add_one(volume);
        if (status != LIG_OK && status != LIG_E_BUSY &&
            !(status == LIG_E_IO && strstr(lig_error_text(), "Input/output error") != NULL)) {
            print_message("%s\n", lig_error_text());
            return volume;
        }
        done += status == LIG_OK;
    }
    return NULL;
}

static int count_in_threads(void *folder)
{
    pthread_t threads[THREADS];
    void *volume, *result;
    int wrong = 0;

    fail_writes(0, EIO);
    if (open_at(folder, "", &volume) != LIG_OK)
        return 1;
    atomic_store(&period, FAILURE_PERIOD);
    for (int i = 0; i < THREADS; i++)
        wrong |= pthread_create(&threads[i], NULL, count_up, volume);
    for (int i = 0; i < THREADS; i++)
        wrong |= pthread_join(threads[i], &result) != 0 || result != NULL;
    atomic_store(&period, 0);
    close_at(volume);
    return wrong ? 2 : atomic_load(&reopenings) > 0 ? 0 : 3;
}

static void threads_and_processes_count_on(void **state)
{
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t version, number;
    int status;

    pid_t child = child_fork();
    if (child == 0)
        _exit(count_in_threads(*state));
    assert_int_equal(count_in_threads(*state), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_ok(open_at(*state, "", &volume));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_ok(OPS->catalog_get(snapshot, "a", 1, &item));
    memcpy(&number, item.value, sizeof number);
    assert_int_equal(number, 2 * THREADS * COMMITS);
    assert_int_equal(version, 2 * THREADS * COMMITS);
    OPS->catalog_end(snapshot);
    close_at(volume);
}

static int commit_many(void *folder)
{
    static uint8_t value[1000];
    void *volume;
    int failures = 0;

    if (open_at(folder, "fsync=0", &volume) != LIG_OK)
        return 1;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t key = i % 20;
        memset(value, (int)i, sizeof value);
        const lig_catalog_op op = {&key, sizeof key, value, sizeof value};
        failures += commit_ops(OPS, volume, version_of(volume), &op, 1) != LIG_OK;
    }
    close_at(volume);
    return failures != 0;
}

/* Closing the lock file drops the process's lock: without it, others take its snapshots for those
 * of a dead process, and reuse the pages. */
static void snapshots_are_protected_afterwards(void **state)
{
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t version, number;

    assert_int_equal(child_run(commit_many, *state), 0);
    assert_ok(open_at(*state, "fsync=0", &volume));
    fail_writes(1, EIO);
    assert_ok(commit_text(volume, 200, "k", "v"));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_int_equal(version, 201);
    assert_int_equal(atomic_load(&reopenings), 1);
    assert_int_equal(child_run(commit_many, *state), 0);
    for (uint64_t key = 0; key < 20; key++) {
        assert_ok(OPS->catalog_get(snapshot, &key, sizeof key, &item));
        assert_int_equal(item.value_bytes, 1000);
        number = 180 + key;
        for (size_t i = 0; i < item.value_bytes; i++)
            assert_int_equal(((const uint8_t *)item.value)[i], (uint8_t)number);
    }
    OPS->catalog_end(snapshot);
    assert_int_equal(version_of(volume), 401);
    close_at(volume);
}

#define failure_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        failure_test(commits_outlive_failed_writes),
        failure_test(failed_reopenings_are_repeated),
        failure_test(snapshots_end_first),
        failure_test(syncs_are_repeated_without_a_snapshot),
        failure_test(threads_and_processes_count_on),
        failure_test(snapshots_are_protected_afterwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
