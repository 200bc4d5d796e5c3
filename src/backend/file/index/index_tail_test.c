/* Commits that the index does not have yet: what snapshots of this and of other processes show,
 * and what is left when a process is killed before it has written the index. */
#include "backend/file/catalog/catalog_write.h"
#include "backend/file/index/index_items.h"
#include "backend/file/index/index_tail.h"
#include "file_volume.h"

#include <inttypes.h>

enum { MANY = 150 };

static ligi_file_catalog *open_catalog(const char *folder)
{
    ligi_file_catalog *catalog;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const ligi_file_catalog_place place = {.folder_fd = fd,
                                           .index_fd = fd,
                                           .place = folder,
                                           .map_bytes = 1 << 24,
                                           .log_bytes = 1 << 26,
                                           .wait_ns = INT64_C(10000000000)};

    assert_true(fd >= 0);
    assert_ok(ligi_file_catalog_open(&catalog, &place));
    close(fd);
    return catalog;
}

/* How many commits the index lacks. */
static uint64_t lag(ligi_file_catalog *catalog)
{
    ligi_clog_position index;

    assert_true(ligi_mdb_tail_index(catalog, &index));
    return ligi_head_appended(&catalog->log.head) - index.version;
}

static void put(void *volume, const char *key, const char *value)
{
    const lig_catalog_op op = {key, strlen(key), value, value ? strlen(value) : 0};

    assert_ok(commit_ops(OPS, volume, version_of(volume), &op, 1));
}

/* What the snapshot shows, in order: "k=v k=v ". */
static void show(void *snapshot, char text[256])
{
    lig_catalog_item item;
    uint8_t key[65] = {1};
    size_t key_bytes = 1, used = 0;

    text[0] = '\0';
    while (OPS->catalog_seek(snapshot, key, key_bytes, &item) == LIG_OK) {
        lig_catalog_item same;
        used += (size_t)snprintf(text + used, 256 - used, "%.*s=%.*s ", (int)item.key_bytes,
                                 (const char *)item.key, (int)item.value_bytes,
                                 (const char *)item.value);
        memcpy(key, item.key, item.key_bytes);
        assert_ok(OPS->catalog_get(snapshot, key, item.key_bytes, &same));
        assert_int_equal(same.value_bytes, item.value_bytes);
        key[item.key_bytes] = 0;
        key_bytes = item.key_bytes + 1;
    }
}

static void assert_shows(void *volume, const char *wanted)
{
    void *snapshot;
    uint64_t version;
    char text[256];

    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    show(snapshot, text);
    OPS->catalog_end(snapshot);
    assert_string_equal(text, wanted);
}

/* Items of the index and of the commits above it in one order: put, replaced, erased, put again. */
static void snapshots_show_what_the_index_lacks(void **state)
{
    void *volume, *before;
    uint64_t version;
    char text[256];

    assert_ok(open_at(*state, "", &volume));
    put(volume, "b", "1");
    put(volume, "d", "1");
    put(volume, "f", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    assert_int_equal(lag(catalog), 0);
    put(volume, "a", "2");
    put(volume, "d", NULL);
    put(volume, "e", "2");
    put(volume, "g", "2");
    put(volume, "b", "2");
    put(volume, "g", NULL);
    assert_int_equal(lag(catalog), 6);
    assert_shows(volume, "a=2 b=2 e=2 f=1 ");
    assert_ok(OPS->catalog_begin(volume, &before, &version));
    put(volume, "d", "3");
    put(volume, "f", NULL);
    assert_shows(volume, "a=2 b=2 d=3 e=2 ");
    assert_ok(OPS->catalog_settle(volume));
    assert_int_equal(lag(catalog), 0);
    assert_shows(volume, "a=2 b=2 d=3 e=2 ");
    show(before, text);
    assert_string_equal(text, "a=2 b=2 e=2 f=1 ");
    OPS->catalog_end(before);
    ligi_file_catalog_close(catalog);
    close_at(volume);
}

static void the_last_user_leaves_a_whole_index(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, "a", "1");
    put(volume, "b", "1");
    close_at(volume);
    ligi_file_catalog *catalog = open_catalog(*state);
    assert_int_equal(lag(catalog), 0);
    assert_ok(open_at(*state, "", &volume));
    assert_shows(volume, "a=1 b=1 ");
    close_at(volume);
    ligi_file_catalog_close(catalog);
}

/* Commits `count` times: key "n" counts. */
static void count_up(void *volume, uint64_t count)
{
    char number[24];

    for (uint64_t i = 0; i < count; i++) {
        snprintf(number, sizeof number, "%" PRIu64, version_of(volume) + 1);
        put(volume, "n", number);
    }
}

/* LIG_E_BUSY when somebody else was first. */
static lig_status count_once(void *volume)
{
    char number[24];
    uint64_t version = version_of(volume);
    int bytes = snprintf(number, sizeof number, "%" PRIu64, version + 1);
    const lig_catalog_op op = {"n", 1, number, (size_t)bytes};

    return commit_ops(OPS, volume, version, &op, 1);
}

static void count_many(void *volume)
{
    for (uint64_t i = 0; i < MANY;) {
        lig_status status = count_once(volume);
        assert_true(status == LIG_OK || status == LIG_E_BUSY);
        i += status == LIG_OK;
    }
}

static uint64_t counted(void *volume, uint64_t *version)
{
    void *snapshot;
    lig_catalog_item item;
    uint64_t number = 0;

    assert_ok(OPS->catalog_begin(volume, &snapshot, version));
    if (OPS->catalog_get(snapshot, "n", 1, &item) == LIG_OK) {
        char text[24];
        snprintf(text, sizeof text, "%.*s", (int)item.value_bytes, (const char *)item.value);
        number = strtoull(text, NULL, 10);
    }
    OPS->catalog_end(snapshot);
    return number;
}

static void commit_some(void *folder)
{
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    count_up(volume, 5);
}

/* The index is behind when its writer dies. */
static void commits_of_the_killed_are_shown(void **state)
{
    void *volume;
    uint64_t version;

    assert_ok(open_at(*state, "", &volume));
    put(volume, "n", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    for (uint64_t i = 1; i <= 3; i++) {
        child_kill(child_start(commit_some, *state));
        assert_int_equal(counted(volume, &version), 1 + 5 * i);
        assert_int_equal(version, 1 + 5 * i);
        assert_int_equal(lag(catalog), 5 * i);
    }
    count_up(volume, MANY);
    assert_true(lag(catalog) < MANY);
    child_kill(child_start(commit_some, *state));
    assert_int_equal(counted(volume, &version), 21 + MANY);
    ligi_file_catalog_close(catalog);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_int_equal(counted(volume, &version), 21 + MANY);
    assert_int_equal(version, 21 + MANY);
    close_at(volume);
}

/* Says after each commit which one it was. */
static void commit_and_tell(const char *folder, int fd)
{
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    for (uint64_t i = 0; i < MANY; i++) {
        count_up(volume, 1);
        uint64_t version = version_of(volume);
        if (write(fd, &version, sizeof version) != (ssize_t)sizeof version)
            _exit(1);
    }
    close_at(volume);
    _exit(0);
}

/* What another process was told, this one sees. */
static void readers_see_what_was_acknowledged(void **state)
{
    void *volume;
    uint64_t told, seen = 0, version;
    int both[2], status;

    assert_ok(open_at(*state, "", &volume));
    assert_int_equal(pipe2(both, O_CLOEXEC), 0);
    pid_t child = child_fork();
    if (child == 0)
        commit_and_tell(*state, both[1]);
    close(both[1]);
    while (read(both[0], &told, sizeof told) == (ssize_t)sizeof told) {
        uint64_t number = counted(volume, &version);
        assert_int_equal(number, version);
        assert_true(version >= told && version >= seen);
        seen = version;
    }
    assert_int_equal(seen, MANY);
    close(both[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_at(volume);
}

typedef struct watcher {
    void *volume;
    atomic_int *done;
    uint64_t seen;
    int wrong;
} watcher;

/* A thread that reads until the others have committed all: each snapshot is whole. */
static void *watch(void *context)
{
    watcher *self = context;

    for (int last = 0; !last;) {
        uint64_t version;
        last = atomic_load(self->done);
        self->wrong += counted(self->volume, &version) != version || version < self->seen;
        self->seen = version;
    }
    return NULL;
}

/* Readers read on for one another, and trim what a snapshot of another thread still shows. */
static void threads_share_what_was_read(void **state)
{
    void *volume;
    pthread_t threads[3];
    watcher watchers[3];
    atomic_int done = 0;
    int status;

    assert_ok(open_at(*state, "", &volume));
    pid_t child = child_fork();
    if (child == 0) {
        void *own;
        assert_ok(open_at(*state, "", &own));
        count_many(own);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        watchers[i] = (watcher){.volume = volume, .done = &done};
        assert_int_equal(pthread_create(&threads[i], NULL, watch, &watchers[i]), 0);
    }
    count_many(volume);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&done, 1);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(watchers[i].wrong, 0);
        assert_int_equal(watchers[i].seen, 2 * MANY);
    }
    close_at(volume);
}

static void damage_last_record(const char *folder, ligi_file_catalog *catalog)
{
    char path[FOLDER_BYTES + 64];
    uint8_t byte;

    pthread_mutex_lock(&catalog->recent_lock);
    ligi_clog_position at = catalog->recent->at;
    pthread_mutex_unlock(&catalog->recent_lock);
    snprintf(path, sizeof path, "%s/log/segment-%016" PRIx64, folder, at.segment);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at.last + 24), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at.last + 24), 1);
    close(fd);
}

static lig_status count_problem(void *context, const char *text, const void *event, size_t bytes)
{
    (void)text, (void)event, (void)bytes;
    ++*(int *)context;
    return LIG_OK;
}

/* A record that the index lacks is damaged. A repair keeps the commits behind it, which the index
 * lacks, too; a large one is then only in the new checkpoint. */
static void a_repair_keeps_commits_behind_the_damage(void **state)
{
    static char large[3000];
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t version;
    int problems = 0;

    memset(large, 'x', sizeof large - 1);
    assert_ok(open_at(*state, "", &volume));
    put(volume, "a", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    put(volume, "b", "1");
    damage_last_record(*state, catalog);
    put(volume, "c", large);
    put(volume, "a", NULL);
    put(volume, "d", "1");
    assert_int_equal(lag(catalog), 4);
    version = version_of(volume);
    assert_ok(OPS->catalog_verify(volume, 1, count_problem, &problems));
    assert_true(problems > 0);
    assert_true(version_of(volume) >= version);
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_int_equal(OPS->catalog_get(snapshot, "a", 1, &item), LIG_E_NOTFOUND);
    assert_ok(OPS->catalog_get(snapshot, "d", 1, &item));
    assert_ok(OPS->catalog_get(snapshot, "c", 1, &item));
    assert_int_equal(item.value_bytes, strlen(large));
    assert_memory_equal(item.value, large, strlen(large));
    OPS->catalog_end(snapshot);
    put(volume, "e", "1");
    ligi_file_catalog_close(catalog);
    close_at(volume);
}

static void read_damaged(void *folder)
{
    const lig_catalog_op op = {"d", 1, "1", 1};
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    assert_shows(volume, "a=1 b=1 c=1 ");
    assert_int_equal(commit_ops(OPS, volume, version_of(volume), &op, 1), LIG_E_CORRUPT);
}

/* Only the header of the record is damaged: its items are whole, as is the commit behind it. Other
 * processes read both, and so does the next one to open the store, which a repair needs. */
static void a_damage_behind_the_index_leaves_a_store_to_read(void **state)
{
    int problems = 0;
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, "a", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    put(volume, "b", "1");
    damage_last_record(*state, catalog);
    put(volume, "c", "1");
    assert_int_equal(lag(catalog), 2);
    child_kill(child_start(read_damaged, *state));
    assert_shows(volume, "a=1 b=1 c=1 ");
    ligi_file_catalog_close(catalog);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_shows(volume, "a=1 b=1 c=1 ");
    assert_ok(OPS->catalog_verify(volume, 1, count_problem, &problems));
    assert_true(problems > 0);
    put(volume, "d", "1");
    assert_shows(volume, "a=1 b=1 c=1 d=1 ");
    close_at(volume);
}

/* The same when nobody has looked before the last user closes the store. */
static void a_damage_behind_the_index_does_not_close_the_store(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, "a", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    put(volume, "b", "1");
    damage_last_record(*state, catalog);
    put(volume, "c", "1");
    ligi_file_catalog_close(catalog);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_shows(volume, "a=1 b=1 c=1 ");
    close_at(volume);
}

/* The last record of the log, as the kernel leaves it that could not write it. */
static void lose_last_record(const char *folder, ligi_file_catalog *catalog)
{
    static const uint8_t zeros[4096];
    char path[FOLDER_BYTES + 64];

    pthread_mutex_lock(&catalog->recent_lock);
    ligi_clog_position at = catalog->recent->at;
    pthread_mutex_unlock(&catalog->recent_lock);
    snprintf(path, sizeof path, "%s/log/segment-%016" PRIx64, folder, at.segment);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t bytes = at.offset - at.last;
    assert_true(fd >= 0 && bytes <= sizeof zeros);
    assert_int_equal(pwrite(fd, zeros, bytes, (off_t)at.last), bytes);
    close(fd);
}

static void commit_once(void *folder)
{
    void *volume;

    assert_ok(open_at(folder, "fsync=0", &volume));
    put(volume, "other", "1");
    assert_shows(volume, "a=1 other=1 ");
}

/* Nobody writes over a published commit that has left the cache: the log begins anew behind those
 * that are left, and who still holds the lost one in memory forgets it. */
static void a_published_commit_that_is_lost_begins_an_epoch(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "fsync=0", &volume));
    put(volume, "a", "1");
    assert_ok(OPS->catalog_settle(volume));
    ligi_file_catalog *catalog = open_catalog(*state);
    put(volume, "lost", "1");
    assert_shows(volume, "a=1 lost=1 ");
    assert_int_equal(lag(catalog), 1);
    uint32_t epoch = ligi_head_epoch(&catalog->log.head);
    lose_last_record(*state, catalog);
    pid_t child = child_start(commit_once, *state);
    assert_int_equal(ligi_head_epoch(&catalog->log.head), epoch + 1);
    assert_true(ligi_head_lost(&catalog->log.head, epoch));
    assert_shows(volume, "a=1 other=1 ");
    put(volume, "b", "1");
    assert_shows(volume, "a=1 b=1 other=1 ");
    child_kill(child);
    ligi_file_catalog_close(catalog);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_shows(volume, "a=1 b=1 other=1 ");
    close_at(volume);
}

/* The head was removed: another process makes one of its own, and appends under its own lock. What
 * it has half written must not be cut by who closes the store with the old head. */
static void without_its_head_nobody_cuts_the_log(void **state)
{
    static const char half[64] = "half a record of a process with another head";
    char path[FOLDER_BYTES + 64], found[sizeof half];
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    put(volume, "a", "1");
    put(volume, "b", "1");
    ligi_file_catalog *catalog = open_catalog(*state);
    ligi_clog_position at = catalog->recent->at;
    assert_int_equal(lag(catalog), 2);
    snprintf(path, sizeof path, "%s/log/head", (const char *)*state);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/log/segment-%016" PRIx64, (const char *)*state, at.segment);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, half, sizeof half, (off_t)at.offset), sizeof half);
    assert_int_equal(OPS->catalog_settle(volume), LIG_E_IO);
    ligi_file_catalog_close(catalog);
    close_at(volume);
    assert_int_equal(pread(fd, found, sizeof found, (off_t)at.offset), sizeof found);
    assert_memory_equal(found, half, sizeof half);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(snapshots_show_what_the_index_lacks),
        folder_test(the_last_user_leaves_a_whole_index),
        folder_test(commits_of_the_killed_are_shown),
        folder_test(readers_see_what_was_acknowledged),
        folder_test(threads_share_what_was_read),
        folder_test(a_repair_keeps_commits_behind_the_damage),
        folder_test(a_damage_behind_the_index_leaves_a_store_to_read),
        folder_test(a_damage_behind_the_index_does_not_close_the_store),
        folder_test(a_published_commit_that_is_lost_begins_an_epoch),
        folder_test(without_its_head_nobody_cuts_the_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
