/* The LMDB environment of the index, with other processes attached. */
#include "file_volume.h"

#include <sys/syscall.h>

enum { KEYS = 200 };

static int interrupted; /* so many allocations are */

/* Takes the place of the C library's. */
int posix_fallocate(int fd, off_t from, off_t bytes)
{
    if (interrupted > 0 && interrupted--)
        return EINTR;
    return fallocate(fd, 0, from, bytes) == 0 ? 0 : errno;
}

static void put_all(void *volume, uint64_t version, char text)
{
    char values[KEYS][300];
    uint32_t keys[KEYS];
    lig_catalog_op ops[KEYS];

    memset(values, text, sizeof values);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        ops[i] = (lig_catalog_op){&keys[i], sizeof keys[i], values[i], sizeof values[i]};
    }
    assert_ok(commit_ops(OPS, volume, version, ops, KEYS));
}

static int replace_all(void *folder)
{
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    for (uint64_t version = 1; version < 9; version++)
        put_all(volume, version, 'b');
    close_at(volume);
    return 0;
}

/* As a program does that copies a store which it has open. */
static void read_every_file(const char *folder)
{
    char path[300];
    DIR *listing = opendir(folder);

    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        close(open(path, O_RDONLY | O_CLOEXEC));
    }
    closedir(listing);
}

static void snapshots_outlive_a_copy_by_their_process(void **state)
{
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t version;

    assert_ok(open_at(*state, "", &volume));
    put_all(volume, 0, 'a');
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    read_every_file(*state);
    assert_int_equal(child_run(replace_all, *state), 0);
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_ok(OPS->catalog_get(snapshot, &key, sizeof key, &item));
        assert_int_equal(*(const char *)item.value, 'a');
    }
    OPS->catalog_end(snapshot);
    close_at(volume);
}

static void a_signal_does_not_keep_a_store_from_opening(void **state)
{
    void *volume;

    interrupted = 2;
    assert_ok(open_at(*state, "", &volume));
    assert_int_equal(interrupted, 0);
    close_at(volume);
}

static pid_t the_parent;

static void take_its_id(void *folder)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = the_parent, .l_len = 1};
    char path[128];
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    snprintf(path, sizeof path, "%s/index.mdb-lock", (const char *)folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0)
        _exit(5);
}

/* Two containers on one host have a process of the same id each. */
static void a_process_with_this_id_is_named(void **state)
{
    void *volume;

    the_parent = getpid();
    pid_t child = child_start(take_its_id, *state);
    assert_status(open_at(*state, "", &volume), LIG_E_BUSY);
    assert_says("a process of another container has the store open");
    child_kill(child);
    assert_ok(open_at(*state, "", &volume));
    close_at(volume);
}

/* A program that is being started has all descriptors until it runs, and no fork handler has been
 * called for it. */
static void a_store_opens_again_while_a_program_starts(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        for (;;)
            pause();
    assert_true(child > 0);
    close_at(volume);
    lig_status status = open_at(*state, "", &volume);
    child_kill(child);
    assert_ok(status);
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(snapshots_outlive_a_copy_by_their_process),
        folder_test(a_signal_does_not_keep_a_store_from_opening),
        folder_test(a_process_with_this_id_is_named),
        folder_test(a_store_opens_again_while_a_program_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
