#include "file_volume.h"

#include <sched.h>

static void *open_place(const char *folder)
{
    void *volume = NULL;
    assert_ok(open_at(folder, "", &volume));
    return volume;
}

static int lock_files(const char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "%s/leases", folder);
    return count_entries(path, "run-");
}

static void lock_path(char *path, size_t path_bytes, const char *folder)
{
    snprintf(path, path_bytes, "%s/leases", folder);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strncmp(entry->d_name, "run-", 4) == 0)
            snprintf(path, path_bytes, "%s/leases/%s", folder, entry->d_name);
    closedir(listing);
}

static void hold(void *folder)
{
    void *volume, *lock;
    if (open_at(folder, "", &volume) != LIG_OK || OPS->lock(volume, "a", &lock) != LIG_OK)
        _exit(5);
}

/* What another process gets that asks for the name. */
static int asked(void *folder)
{
    void *volume, *lock;
    if (open_at(folder, "", &volume) != LIG_OK)
        return 100;
    int status = (int)OPS->lock(volume, "a", &lock);
    if (status == LIG_OK)
        OPS->unlock(lock);
    close_at(volume);
    return status;
}

static void one_process_holds_a_name(void **state)
{
    void *volume = open_place(*state), *lock = NULL, *other;
    char number[32], host[128] = "";

    pid_t child = child_start(hold, *state);
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_BUSY);
    assert_null(lock);
    snprintf(number, sizeof number, "process %d on ", (int)child);
    gethostname(host, sizeof host - 1);
    assert_says(number);
    assert_says(host);
    assert_says("run 'a'");
    assert_ok(OPS->lock(volume, "b", &other));
    OPS->unlock(other);
    kill(child, SIGSTOP); /* the living may be slow */
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_BUSY);
    assert_says(number);
    child_kill(child);
    assert_int_equal(lock_files(*state), 1);
    assert_ok(OPS->lock(volume, "a", &lock));
    OPS->unlock(lock);
    OPS->unlock(NULL);
    assert_int_equal(lock_files(*state), 0);
    close_at(volume);
}

static void a_process_gets_its_own_name_again(void **state)
{
    void *volume = open_place(*state), *second = open_place(*state), *locks[2];

    assert_ok(OPS->lock(volume, "a", &locks[0]));
    assert_ok(OPS->lock(second, "a", &locks[1]));
    OPS->unlock(locks[0]);
    close_at(volume);
    assert_int_equal(child_run(asked, *state), LIG_E_BUSY);
    close_at(second); /* a lock outlives the handle that it was taken through */
    assert_int_equal(child_run(asked, *state), LIG_E_BUSY);
    OPS->unlock(locks[1]);
    assert_int_equal(child_run(asked, *state), LIG_OK);
    assert_int_equal(lock_files(*state), 0);
}

static void readers_lock_nothing(void **state)
{
    void *volume = open_place(*state), *reader, *lock;

    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_ok(open_at(*state, "mode=r", &reader));
    assert_status(OPS->lock(reader, "a", &lock), LIG_E_DENIED);
    close_at(reader);
    close_at(volume);
}

typedef struct family {
    const char *folder;
    int end[2];
    void *volume, *lock;
} family;

static void hold_and_fork(void *opaque)
{
    family *self = opaque;
    hold((void *)self->folder);
    if (fork() == 0) { /* lives until the test closes its end */
        char byte;
        close(self->end[1]);
        _exit(read(self->end[0], &byte, 1) < 0);
    }
}

static void a_forked_child_does_not_keep_the_lock(void **state)
{
    family self = {.folder = *state};
    void *volume = open_place(*state), *lock;

    assert_int_equal(pipe2(self.end, O_CLOEXEC), 0);
    pid_t child = child_start(hold_and_fork, &self);
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_BUSY);
    child_kill(child);
    assert_ok(OPS->lock(volume, "a", &lock));
    OPS->unlock(lock);
    close(self.end[0]);
    close(self.end[1]);
    close_at(volume);
}

static int release_in_child(void *opaque)
{
    family *self = opaque;
    void *lock;
    if (OPS->lock(self->volume, "a", &lock) != LIG_E_CLOSED)
        return 50;
    OPS->unlock(self->lock);
    return asked((void *)self->folder);
}

static void a_forked_child_is_another_process(void **state)
{
    family self = {.folder = *state, .volume = open_place(*state)};

    assert_ok(OPS->lock(self.volume, "a", &self.lock));
    assert_int_equal(child_run(release_in_child, &self), LIG_E_BUSY);
    assert_int_equal(child_run(asked, *state), LIG_E_BUSY);
    OPS->unlock(self.lock);
    assert_int_equal(child_run(asked, *state), LIG_OK);
    close_at(self.volume);
}

static void leftovers_are_removed_when_they_are_old(void **state)
{
    char path[400];
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    child_kill(child_start(hold, *state));
    close_at(open_place(*state));
    assert_int_equal(lock_files(*state), 1); /* young */
    lock_path(path, sizeof path, *state);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    close_at(open_place(*state));
    assert_int_equal(lock_files(*state), 0);
    pid_t child = child_start(hold, *state);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    close_at(open_place(*state));
    assert_int_equal(lock_files(*state), 1); /* old, but held */
    assert_int_equal(child_run(asked, *state), LIG_E_BUSY);
    child_kill(child);
}

static void what_is_no_lock_file_is_left_alone(void **state)
{
    char path[400], target[128], text[16] = "";
    void *volume = open_place(*state), *lock;

    assert_ok(OPS->lock(volume, "a", &lock));
    lock_path(path, sizeof path, *state);
    OPS->unlock(lock);
    snprintf(target, sizeof target, "%s-target", (const char *)*state);
    FILE *file = fopen(target, "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    assert_int_equal(symlink(target, path), 0);
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(target, path), 0);
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_CORRUPT);
    assert_int_equal(unlink(path), 0);
    file = fopen(target, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "precious");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(OPS->lock(volume, "a", &lock), LIG_E_CORRUPT);
    assert_says("not a lock file");
    close_at(volume);
}

enum { CONTENDERS = 3, ROUNDS = 100 };

/* Takes the name again and again; the file `inside` is there while somebody has it. */
static int contend(void *opaque)
{
    const char *folder = opaque;
    char inside[128];
    void *volume, *lock;

    snprintf(inside, sizeof inside, "%s-inside", folder);
    if (open_at(folder, "fsync=0", &volume) != LIG_OK)
        return 1;
    for (int done = 0; done < ROUNDS;) {
        lig_status status = OPS->lock(volume, "a", &lock);
        if (status == LIG_E_BUSY && sched_yield() == 0)
            continue;
        int fd = open(inside, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (status != LIG_OK || fd < 0)
            return 2;
        close(fd);
        unlink(inside);
        OPS->unlock(lock);
        done++;
    }
    close_at(volume);
    return 0;
}

static void two_never_hold_one_name(void **state)
{
    pid_t children[CONTENDERS];
    int status;

    for (int i = 0; i < CONTENDERS; i++) {
        children[i] = child_fork();
        if (children[i] == 0)
            _exit(contend(*state));
    }
    for (int i = 0; i < CONTENDERS; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(lock_files(*state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(one_process_holds_a_name),
        folder_test(a_process_gets_its_own_name_again),
        folder_test(readers_lock_nothing),
        folder_test(a_forked_child_does_not_keep_the_lock),
        folder_test(a_forked_child_is_another_process),
        folder_test(leftovers_are_removed_when_they_are_old),
        folder_test(what_is_no_lock_file_is_left_alone),
        folder_test(two_never_hold_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
