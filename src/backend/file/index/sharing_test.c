/* A store that several hosts write to. Two hosts are two folders for the index: processes that use
 * different ones share nothing but the store's folder. */
#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/file.h"
#include "file_volume.h"

#include <sys/wait.h>

enum { WRITERS = 4, COMMITS = 60 };

static lig_status open_on(const char *folder, const char *host, const char *options, void **volume)
{
    char text[160];

    snprintf(text, sizeof text, "share=network&index=%s-%s%s", folder, host, options);
    return open_at(folder, text, volume);
}

static void remove_hosts(const char *folder)
{
    char command[256];

    snprintf(command, sizeof command, "rm -rf '%s'-?", folder);
    assert_int_equal(system(command), 0);
}

static uint64_t number_at(void *snapshot, const char *key)
{
    lig_catalog_item item;
    uint64_t number = 0;

    if (OPS->catalog_get(snapshot, key, strlen(key), &item) == LIG_OK &&
        item.value_bytes >= sizeof number)
        memcpy(&number, item.value, sizeof number);
    return number;
}

/* Increments a shared counter and its own, in one commit. */
static lig_status count_up(void *volume, const char *own)
{
    uint8_t large[2000] = {0}; /* lies in the log, and not in the index */
    uint64_t version, all, mine;
    void *snapshot;

    LIG_TRY(OPS->catalog_begin(volume, &snapshot, &version));
    all = number_at(snapshot, "all") + 1;
    mine = number_at(snapshot, own) + 1;
    OPS->catalog_end(snapshot);
    memcpy(large, &mine, sizeof mine);
    const lig_catalog_op ops[] = {{"all", 3, &all, sizeof all},
                                  {own, strlen(own), large, sizeof large}};
    const lig_catalog_edit edit = {.version = version, .ops = ops, .op_count = 2};
    return OPS->catalog_commit(volume, &edit);
}

static int write_all(const char *folder, int writer)
{
    const char host[] = {(char)('A' + writer % 2), '\0'}, own[] = {'w', (char)('0' + writer), '\0'};
    void *volume;

    for (int done = 0; done < COMMITS;) {
        if (open_on(folder, host, "&fsync=0", &volume) != LIG_OK)
            return 1;
        lig_status status = LIG_OK;
        for (int end = done + COMMITS / 3; done < end; done += status == LIG_OK) {
            status = count_up(volume, own);
            if (status != LIG_OK && status != LIG_E_BUSY)
                return 2;
        }
        close_at(volume);
    }
    return 0;
}

/* The sum of the writers' counters must equal the shared counter at that version. */
static uint64_t look_at(void *volume)
{
    uint64_t version, sum = 0;
    void *snapshot;

    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    for (int i = 0; i < WRITERS; i++)
        sum += number_at(snapshot, (const char[]){'w', (char)('0' + i), '\0'});
    assert_int_equal(number_at(snapshot, "all"), version);
    assert_int_equal(sum, version);
    OPS->catalog_end(snapshot);
    return version;
}

static int tell_exit(const char *folder, int writer)
{
    int code = write_all(folder, writer);

    if (code != 0)
        fprintf(stderr, "writer %d: %d: %s\n", writer, code, lig_error_text());
    return code;
}

static void hosts_commit_in_one_order(void **state)
{
    const char *folder = *state;
    void *reader, *other, *fresh;
    pid_t writers[WRITERS];
    uint64_t seen = 0;

    assert_ok(open_on(folder, "A", "", &other));
    close_at(other);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = fork();
        if (writers[i] == 0)
            _exit(tell_exit(folder, i));
    }
    assert_ok(open_on(folder, "A", "&mode=r", &reader));
    assert_ok(open_on(folder, "B", "", &other));
    while (seen < WRITERS * COMMITS / 2) {
        uint64_t one = look_at(reader), two = look_at(other);
        assert_true(one >= seen && two >= one);
        seen = two;
    }
    for (int i = 0; i < WRITERS; i++) {
        int code;
        assert_int_equal(waitpid(writers[i], &code, 0), writers[i]);
        assert_int_equal(code, 0);
    }
    assert_ok(open_on(folder, "C", "", &fresh));
    assert_int_equal(look_at(reader), WRITERS * COMMITS);
    assert_int_equal(look_at(other), WRITERS * COMMITS);
    assert_int_equal(look_at(fresh), WRITERS * COMMITS);
    close_at(fresh);
    close_at(other);
    close_at(reader);
    remove_hosts(folder);
}

/* --- hosts that fall behind --- */

/* As if the grace were over: nothing below the last checkpoint is left. */
static void remove_old(const char *folder)
{
    ligi_clog_folder log;
    uint64_t *checkpoints, *segments;
    size_t count, segment_count;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_ok(ligi_clog_folder_open(&log, fd, folder, 0, 0));
    assert_ok(ligi_clog_folder_list(&log, LIGI_NAME_CHECKPOINT, &checkpoints, &count));
    assert_true(count > 0);
    assert_ok(ligi_clog_folder_list(&log, LIGI_NAME_SEGMENT, &segments, &segment_count));
    for (size_t i = 0; i < segment_count; i++)
        if (segments[i] <= checkpoints[count - 1])
            assert_ok(ligi_clog_folder_remove(&log, LIGI_NAME_SEGMENT, segments[i]));
    free(checkpoints);
    free(segments);
    ligi_clog_folder_close(&log);
    close(fd);
}

/* As if its view had expired. */
static void grow_old(void *volume)
{
    const ligi_file *file = volume;

    atomic_store(&file->catalog->log.confirmed_ns, 1);
}

static void hosts_that_fell_behind_catch_up(void **state)
{
    const char *folder = *state;
    void *writer, *open, *reader, *closed;

    assert_ok(open_on(folder, "A", "&fsync=0", &writer));
    assert_ok(count_up(writer, "w0"));
    assert_ok(open_on(folder, "B", "&fsync=0", &open));
    assert_ok(open_on(folder, "C", "&fsync=0", &closed));
    close_at(closed);
    for (int i = 0; i < 130; i++)
        assert_ok(count_up(writer, "w1"));
    remove_old(folder);
    grow_old(open);
    assert_ok(open_on(folder, "B", "&mode=r", &reader));
    assert_int_equal(look_at(open), 131);
    assert_int_equal(look_at(reader), 131);
    assert_ok(count_up(open, "w2"));
    assert_ok(open_on(folder, "C", "&fsync=0", &closed));
    assert_int_equal(look_at(closed), 132);
    assert_ok(count_up(closed, "w3"));
    assert_int_equal(look_at(writer), 133);
    assert_int_equal(look_at(reader), 133);
    close_at(closed);
    close_at(reader);
    close_at(open);
    close_at(writer);
    remove_hosts(folder);
}

/* --- which processes share --- */

static void ordinary_stores_become_shared(void **state)
{
    const char *folder = *state;
    void *first, *second;

    assert_ok(open_at(folder, "", &first));
    assert_ok(count_up(first, "w0"));
    assert_status(open_on(folder, "A", "", &second), LIG_E_BUSY);
    assert_says("has it open without it");
    close_at(first);
    assert_ok(open_on(folder, "A", "", &second));
    assert_int_equal(look_at(second), 1);
    assert_ok(count_up(second, "w1"));
    char options[160];
    snprintf(options, sizeof options, "index=%s-B", folder);
    assert_ok(open_at(folder, options, &first)); /* shared permanently, whatever is requested */
    assert_ok(count_up(first, "w2"));
    assert_int_equal(look_at(second), 3);
    close_at(first);
    close_at(second);
    remove_hosts(folder);
}

static void folders_of_others_are_refused(void **state)
{
    const char *folder = *state;
    char path[160];
    void *volume;

    snprintf(path, sizeof path, "%s-A", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0770), 0);
    assert_status(open_on(folder, "A", "", &volume), LIG_E_DENIED);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_true(open_on(folder, "A", "", &volume) != LIG_OK);
    assert_int_equal(unlink(path), 0);
    remove_hosts(folder);
}

static uint64_t transactions(void *volume)
{
    MDB_envinfo info;

    assert_int_equal(mdb_env_info(((ligi_file *)volume)->catalog->env, &info), MDB_SUCCESS);
    return info.me_last_txnid;
}

/* What other hosts have committed is in the index before the room for a commit is reserved there:
 * a full disk could not hold both. */
static void the_index_catches_up_first(void **state)
{
    const char *folder = *state;
    void *one, *two;

    assert_ok(open_on(folder, "A", "", &one));
    assert_ok(open_on(folder, "B", "", &two));
    assert_ok(commit_text(one, 0, "a", "1"));
    uint64_t before = transactions(one);
    assert_ok(commit_text(one, 1, "b", "1"));
    assert_int_equal(transactions(one), before + 1);
    assert_int_equal(version_of(two), 2);
    assert_ok(commit_text(two, 2, "c", "1"));
    assert_ok(commit_text(one, 3, "d", "1"));
    assert_int_equal(transactions(one), before + 3);
    close_at(one);
    close_at(two);
    remove_hosts(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(hosts_commit_in_one_order),       folder_test(the_index_catches_up_first),
        folder_test(hosts_that_fell_behind_catch_up), folder_test(ordinary_stores_become_shared),
        folder_test(folders_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
