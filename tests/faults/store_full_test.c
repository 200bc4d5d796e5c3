/* A full disk: a small tmpfs of this process's own, with nothing left on it. Models can be retired
 * and packs compacted, wherever the log stands; afterwards saves succeed again. */
#include "store_folder.h"

#include <ligament/serve.h>

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 40000, SMALL = 500 }; /* floats: in a pack, in the catalog */

static float values[LARGE];
static int mounted;

static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t put = fd < 0 ? 0 : write(fd, text, strlen(text));
    (void)put;
    if (fd >= 0)
        close(fd);
}

/* A private mount namespace; 0 if that is not permitted. */
static int own_mounts(void)
{
    char text[64];
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 0;
    put_file("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %lu 1", (unsigned long)user);
    put_file("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "0 %lu 1", (unsigned long)group);
    put_file("/proc/self/gid_map", text);
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int set_up(void **state)
{
    char *folder = strdup("/tmp/ligament-full-XXXXXX");
    *state = folder;
    if (folder == NULL || mkdtemp(folder) == NULL)
        return -1;
    mounted = mounted && mount("ligament", folder, "tmpfs", 0, "size=4m") == 0;
    return 0;
}

static int tear_down(void **state)
{
    if (mounted)
        umount2(*state, MNT_DETACH);
    remove_folder(*state);
    free(*state);
    return 0;
}

static lig_status save(lig_store *store, int number, int64_t floats)
{
    char name[16];
    lig_tensor tensor = scene_tensor("t", values, &floats);
    snprintf(name, sizeof name, "m%d", number);
    values[0] = (float)number;
    return lig_store_save(store, name, &tensor, 1, NULL);
}

static uint64_t free_bytes(const char *folder)
{
    struct statvfs room;
    assert_int_equal(statvfs(folder, &room), 0);
    return (uint64_t)room.f_bavail * room.f_frsize;
}

/* Another file takes what is free except for `left` bytes. */
static void take(const char *folder, uint64_t left)
{
    static const uint8_t page[4096] = {1};
    char path[64];
    snprintf(path, sizeof path, "%s/rest", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (free_bytes(folder) > left && write(fd, page, sizeof page) == (ssize_t)sizeof page)
        ;
    close(fd);
    assert_true(free_bytes(folder) <= left);
}

static void take_rest(const char *folder)
{
    take(folder, 0);
}

/* Saves more models until nothing fits, takes the rest, and returns how many models there are. */
static int fill_after(lig_store *store, const char *folder, int64_t floats, int count)
{
    while (save(store, count, floats) == LIG_OK)
        count++;
    assert_int_equal(lig_error_number(), ENOSPC);
    while (save(store, count, SMALL) == LIG_OK)
        count++;
    assert_int_equal(lig_error_number(), ENOSPC);
    take_rest(folder);
    return count;
}

static int fill(lig_store *store, const char *folder, int64_t floats)
{
    return fill_after(store, folder, floats, 0);
}

static void compact(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
}

static void retire(lig_store *store, int first, int end)
{
    char name[16];
    for (int i = first; i < end; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_ok(lig_store_retire(store, name));
    }
}

/* The disk is full: everything can be removed, and saves succeed again. */
static void empty(lig_store *store, int count)
{
    compact(store);
    retire(store, 0, count);
    compact(store);
    assert_ok(save(store, 0, LARGE));
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
}

static void free_all(const char *folder, const char *options, int64_t floats, int again)
{
    char uri[128];
    lig_store *store;
    if (!mounted)
        skip();
    snprintf(uri, sizeof uri, "%s/store?%s", folder, options);
    assert_ok(lig_store_open(&store, uri));
    int count = fill(store, folder, floats);
    assert_true(count > 20);
    if (again) {
        lig_store_close(store);
        assert_ok(lig_store_open(&store, uri));
    }
    empty(store, count);
    lig_store_close(store);
}

static off_t segment_bytes(const char *folder)
{
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/store/log/segment-%016d", folder, 1);
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

/* The disk becomes full when the log has just been extended: the index runs out of space first. */
static void no_room_for_the_index(void **state)
{
    const char *folder = *state;
    char uri[128];
    lig_store *store;
    int count = 0;
    if (!mounted)
        skip();
    assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT, "size=16m"), 0);
    snprintf(uri, sizeof uri, "%s/store", folder);
    assert_ok(lig_store_open(&store, uri));
    for (off_t before = 0, now = 0; before < 2 << 20 || now == before; count++) {
        before = segment_bytes(folder);
        assert_ok(save(store, count, 1));
        now = segment_bytes(folder);
    }
    take_rest(folder);
    count = fill_after(store, folder, 1, count);
    empty(store, count);
    lig_store_close(store);
}

static lig_store *open_on(const char *folder, const char *size, const char *options)
{
    char uri[128], data[32];
    lig_store *store;
    snprintf(data, sizeof data, "size=%s", size);
    assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT, data), 0);
    snprintf(uri, sizeof uri, "%s/store%s", folder, options);
    assert_ok(lig_store_open(&store, uri));
    return store;
}

/* The log gets a new segment when little is left, and another file takes the rest right after. */
static void room_moves_with_the_log(void **state)
{
    enum { MODELS = 3000, FLOATS = 225, FIRST = 3 };
    const char *folder = *state;
    if (!mounted)
        skip();
    lig_store *store = open_on(folder, "24m", "");
    for (int i = 0; i < MODELS; i++)
        assert_ok(save(store, i, FLOATS));
    take(folder, 300000);
    retire(store, 0, FIRST);
    take_rest(folder);
    retire(store, FIRST, MODELS);
    assert_ok(save(store, 0, FLOATS));
    lig_store_close(store);
}

static void many_models(void **state)
{
    if (!mounted)
        skip();
    lig_store *store = open_on(*state, "60m", "");
    int count = fill(store, *state, 1);
    assert_true(count > 10000);
    empty(store, count);
    lig_store_close(store);
}

/* The room moves from segment to segment, whenever one is full. */
static void many_small_segments(void **state)
{
    if (!mounted)
        skip();
    lig_store *store = open_on(*state, "24m", "?log=128K");
    empty(store, fill(store, *state, 225));
    lig_store_close(store);
}

/* The index must be built again on the full disk, because its last user did not close it. */
static void killed(void **state)
{
    char uri[128];
    lig_store *store;
    int pipes[2], count = 0;
    if (!mounted)
        skip();
    snprintf(uri, sizeof uri, "%s/store", (const char *)*state);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        assert_ok(lig_store_open(&store, uri));
        count = fill(store, *state, 1);
        _exit(write(pipes[1], &count, sizeof count) != sizeof count);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(read(pipes[0], &count, sizeof count), sizeof count);
    close(pipes[0]);
    close(pipes[1]);
    assert_ok(lig_store_open(&store, uri));
    empty(store, count);
    lig_store_close(store);
}

/* Another program takes every byte that is freed, while a second process has the store open. Once
 * its file is gone, everything that the models used is free. */
static void beside_another_program(const char *folder, const char *options, int64_t floats)
{
    char path[64], byte = 0;
    int ready[2], done[2];
    if (!mounted)
        skip();
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    if (child == 0) {
        close(done[1]);
        lig_store *store = open_on(folder, "2m", options);
        _exit(write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 0 || store == NULL);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    lig_store *store = open_on(folder, "2m", options);
    int count = fill(store, folder, floats);
    for (int i = 0; i < count; i++) {
        retire(store, i, i + 1);
        take_rest(folder);
    }
    snprintf(path, sizeof path, "%s/rest", folder);
    assert_int_equal(unlink(path), 0);
    empty(store, 0);
    close(done[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(done[0]);
    close(ready[0]);
    close(ready[1]);
    lig_store_close(store);
}

static void freed_bytes_are_taken(void **state)
{
    beside_another_program(*state, "?log=256K", 225);
}

static void freed_bytes_are_taken_tiny_models(void **state)
{
    beside_another_program(*state, "?log=4K", 1);
}

static size_t list(const char *folder, const char *start, char last[128])
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/store/log", folder);
    DIR *log = opendir(path);
    assert_non_null(log);
    *last = 0;
    for (struct dirent *entry; (entry = readdir(log)) != NULL;) {
        char name[128];
        snprintf(name, sizeof name, "%s/%.40s", path, entry->d_name);
        if (strncmp(entry->d_name, start, strlen(start)) != 0)
            continue;
        count++;
        if (strcmp(name, last) > 0)
            memcpy(last, name, sizeof name);
    }
    closedir(log);
    return count;
}

/* The files that the last checkpoint supersedes have the room for another one. */
static void no_room_for_a_checkpoint(void **state)
{
    char last[128];
    if (!mounted)
        skip();
    lig_store *store = open_on(*state, "24m", "?log=64K");
    for (int count = 0; list(*state, "checkpoint-", last) < 2; count++)
        assert_ok(save(store, count, SMALL));
    take_rest(*state);
    compact(store);
    assert_int_equal(list(*state, "checkpoint-", last), 1);
    assert_true(free_bytes(*state) > 0);
    lig_store_close(store);
}

/* A model whose removal changes many pages of the index. */
static void many_tensors(void **state)
{
    enum { TENSORS = 3000 };
    static lig_tensor tensors[TENSORS];
    static float each[TENSORS][100];
    static char names[TENSORS][16];
    char uri[128], name[16];
    int64_t floats = 100;
    lig_store *store;
    int count = 0;
    if (!mounted)
        skip();
    snprintf(uri, sizeof uri, "%s/store", (const char *)*state);
    assert_ok(lig_store_open(&store, uri));
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = scene_tensor(names[i], each[i], &floats);
    }
    for (lig_status status = LIG_OK; status == LIG_OK; count += status == LIG_OK) {
        for (int i = 0; i < TENSORS; i++)
            each[i][0] = (float)(count * TENSORS + i);
        snprintf(name, sizeof name, "m%d", count);
        status = lig_store_save(store, name, tensors, TENSORS, NULL);
    }
    assert_int_equal(lig_error_number(), ENOSPC);
    assert_true(count > 0);
    empty(store, fill_after(store, *state, 1, count));
    lig_store_close(store);
}

/* When the server's disk is full, saves of its clients fail and the server continues. */
static void served(void **state)
{
    char uri[256];
    lig_server *server;
    lig_store *store;
    if (!mounted)
        skip();
    snprintf(uri, sizeof uri, "%s/store?log=64K", (const char *)*state);
    assert_ok(lig_server_open(&server, uri, NULL));
    snprintf(uri, sizeof uri, "ligament://%s", lig_server_address(server));
    assert_ok(lig_store_open(&store, uri));
    int count = fill(store, *state, LARGE);
    assert_true(count > 20);
    empty(store, count);
    lig_store_close(store);
    lig_server_close(server);
}

static void large_log(void **state)
{
    free_all(*state, "log=64M", LARGE, 0);
}

/* The segment is past its limit: the next commit would begin a new one. */
static void small_log(void **state)
{
    free_all(*state, "log=64K", LARGE, 0);
}

static void smallest_log(void **state)
{
    free_all(*state, "log=4K", LARGE, 0);
}

static void opened_again(void **state)
{
    free_all(*state, "log=64K", LARGE, 1);
}

/* All models are in the log: each one that is retired makes it longer, and only a checkpoint makes
 * it shorter. */
static void no_packs(void **state)
{
    free_all(*state, "log=64M", SMALL, 0);
}

static void no_packs_small_log(void **state)
{
    free_all(*state, "log=64K", SMALL, 0);
}

static void no_packs_tiny_models(void **state)
{
    free_all(*state, "log=64M", 1, 1);
}

static void quiet(void *context, lig_log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

int main(void)
{
    lig_log_set(quiet, NULL); /* of checkpoints that have no room */
    mounted = own_mounts();
    if (!mounted)
        print_message("mounts are not permitted here: no disk is filled\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(large_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(smallest_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(opened_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_packs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_packs_small_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_packs_tiny_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_room_for_the_index, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_moves_with_the_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_small_segments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_bytes_are_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_bytes_are_taken_tiny_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_room_for_a_checkpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_tensors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
