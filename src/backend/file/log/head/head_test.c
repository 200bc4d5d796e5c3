#include "backend/file/log/head/head.h"
#include "file_log_scene.h"
#include "freeze.h"

#include <sys/mman.h>

#define SECOND INT64_C(1000000000)

static void take_and_wait(void *context)
{
    log_scene *scene = context;

    /* A child has a descriptor, and so a lock, of its own. */
    log_scene_open(scene);
    if (ligi_head_take(&scene->log.head, LIGI_HEAD_WRITE, SECOND) != LIG_OK)
        _exit(5);
}

/* Another process holds the lock; it is named, and killed it holds it no more. */
static void locks_end_with_their_process(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    char holder[128], wanted[32];

    ligi_head_writer(head->fd, holder, sizeof holder);
    assert_string_equal(holder, "");
    pid_t child = child_start(take_and_wait, scene);
    assert_status(ligi_head_take(head, LIGI_HEAD_WRITE, 0), LIG_E_TIMEOUT);
    snprintf(wanted, sizeof wanted, "process %d", (int)child);
    assert_says(wanted);
    assert_status(ligi_head_take(head, LIGI_HEAD_WRITE, SECOND / 50), LIG_E_TIMEOUT);
    assert_says(wanted);
    ligi_head_writer(head->fd, holder, sizeof holder);
    assert_non_null(strstr(holder, wanted));
    assert_false(ligi_head_mine(head, LIGI_HEAD_WRITE));
    assert_ok(ligi_head_take(head, LIGI_HEAD_SYNC, 0)); /* another lock */
    ligi_head_release(head, LIGI_HEAD_SYNC);
    kill(child, SIGSTOP); /* a stopped process holds it as well */
    assert_status(ligi_head_take(head, LIGI_HEAD_WRITE, SECOND / 50), LIG_E_TIMEOUT);
    child_kill(child);
    assert_ok(ligi_head_take(head, LIGI_HEAD_WRITE, 10 * SECOND));
    assert_true(ligi_head_mine(head, LIGI_HEAD_WRITE));
    ligi_head_release(head, LIGI_HEAD_WRITE);
    ligi_head_writer(head->fd, holder, sizeof holder);
    assert_string_equal(holder, "");
}

typedef struct counting {
    ligi_head *head;
    int count;
} counting;

static void *count_under_lock(void *context)
{
    counting *self = context;

    for (int i = 0; i < 300; i++) {
        if (ligi_head_take(self->head, LIGI_HEAD_WRITE, 60 * SECOND) != LIG_OK)
            return "timeout";
        self->count++;
        ligi_head_release(self->head, LIGI_HEAD_WRITE);
    }
    return NULL;
}

/* Threads of one process share a descriptor, which the kernel's lock does not tell apart. */
static void threads_exclude_each_other(void **state)
{
    log_scene *scene = *state;
    counting shared = {&scene->log.head, 0};
    pthread_t threads[4];
    void *failed;

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_under_lock, &shared), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(shared.count, 1200);
    assert_ok(ligi_head_take(shared.head, LIGI_HEAD_WRITE, 0));
    assert_status(ligi_head_take(shared.head, LIGI_HEAD_WRITE, SECOND / 100), LIG_E_TIMEOUT);
    ligi_head_release(shared.head, LIGI_HEAD_WRITE);
}

enum { COUNTERS = 3, COUNTS = 400 };

typedef struct shared_count { /* in memory that processes share */
    log_scene *scene;
    volatile uint64_t count;
} shared_count;

static int count_in_process(void *context)
{
    shared_count *self = context;

    log_scene_open(self->scene);
    for (int i = 0; i < COUNTS; i++) {
        if (ligi_head_take(&self->scene->log.head, LIGI_HEAD_WRITE, 60 * SECOND) != LIG_OK)
            return 5;
        uint64_t before = self->count;
        for (uint64_t turn = 0; turn < 2000; turn++) /* others come meanwhile, and watch or sleep */
            (void)self->count;
        self->count = before + 1;
        ligi_head_release(&self->scene->log.head, LIGI_HEAD_WRITE);
    }
    return 0;
}

static void processes_exclude_each_other(void **state)
{
    pid_t children[COUNTERS];
    shared_count *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    shared->scene = *state;
    for (int i = 0; i < COUNTERS; i++) {
        children[i] = child_fork();
        if (children[i] == 0)
            _exit(count_in_process(shared));
    }
    for (int i = 0, status; i < COUNTERS; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(shared->count, COUNTERS * COUNTS);
    munmap(shared, sizeof *shared);
}

static void attach_shared(void *context)
{
    log_scene *scene = context;

    log_scene_open(scene);
    if (ligi_head_attach(&scene->log.head, 0, SECOND) != LIG_OK)
        _exit(5);
}

static void the_first_and_the_last_are_alone(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;

    assert_ok(ligi_head_attach(head, 1, 0));
    assert_ok(ligi_head_attach(head, 0, 0));
    pid_t child = child_start(attach_shared, scene);
    assert_int_equal(ligi_head_attach(head, 1, 0), LIG_E_BUSY);
    child_kill(child);
    assert_ok(ligi_head_attach(head, 1, 0));
}

/* Of two slots one is always whole. */
static void witnesses(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    char path[128];

    snprintf(path, sizeof path, "%s/log/head", scene->place);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(ligi_head_synced(head), 0);
    for (uint64_t version = 1; version < 50; version += 3) {
        ligi_head_sync(head, version, ligi_head_epoch(head));
        assert_int_equal(ligi_head_synced(head), version);
        assert_int_equal(ligi_head_witness(fd), version);
    }
    ligi_head_sync(head, 20, ligi_head_epoch(head)); /* never back */
    assert_int_equal(ligi_head_synced(head), 49);
    for (off_t at = 0; at < 256; at++) { /* each byte of the page damaged in turn */
        uint8_t before = flip_byte(path, at, 0xFF);
        uint64_t synced = ligi_head_synced(head);
        assert_true(synced == 49 || synced == 46 || synced == 0);
        flip_byte(path, at, 0xFF);
        (void)before;
    }
    ligi_head_sync(head, 60, ligi_head_epoch(head) + 1); /* of an epoch that is over, or to come */
    assert_int_equal(ligi_head_synced(head), 49);
    ligi_head_renew(head);
    ligi_head_append(head, 50); /* without a sync it counts while the machine runs */
    assert_int_equal(ligi_head_synced(head), 49);
    assert_int_equal(ligi_head_witness(fd), 50);
    ligi_head_append(head, 45);
    assert_int_equal(ligi_head_witness(fd), 50);
    ligi_head_poison(head, 1);
    assert_int_equal(ligi_head_witness(fd), 49);
    ligi_head_unpoison(head, 1);
    uint32_t epoch = ligi_head_epoch(head);
    ligi_head_epoch_next(head, 50, 1);
    assert_int_equal(ligi_head_synced(head), 50);
    assert_false(ligi_head_lost(head, epoch));
    ligi_head_epoch_next(head, 48, 1);
    assert_true(ligi_head_lost(head, epoch + 1));
    assert_int_equal(ligi_head_appended(head), 48);
    ligi_head_epoch_next(head, 48, 0);
    assert_int_equal(ligi_head_synced(head), 0);
    assert_true(ligi_head_lost(head, epoch + 2));
    assert_false(ligi_head_lost(head, epoch + 3));
    ligi_head_sync(head, 48, ligi_head_epoch(head));
    assert_int_equal(ligi_head_synced(head), 48);
    close(fd);
}

/* A process that was killed while it synced may have been told of a failure. */
static void interrupted_syncs_poison(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;

    assert_ok(ligi_head_take(head, LIGI_HEAD_SYNC, 0));
    assert_true(ligi_head_sync_begin(head, 5));
    ligi_head_sync_end(head, 3);
    assert_int_equal(ligi_head_synced(head), 3);
    assert_int_equal(ligi_head_poisoned(head), 0);
    assert_true(ligi_head_sync_begin(head, 5));
    assert_true(ligi_head_sync_begin(head, 5));
    assert_int_equal(ligi_head_poisoned(head), 5);
    ligi_head_sync_end(head, 0);
    assert_int_equal(ligi_head_synced(head), 3);
    ligi_head_unpoison(head, 4); /* another one's */
    assert_int_equal(ligi_head_poisoned(head), 5);
    ligi_head_unpoison(head, 5);
    assert_true(ligi_head_sync_begin(head, 5));
    assert_true(ligi_head_sync_begin(head, 7)); /* nothing depends on an earlier one */
    assert_int_equal(ligi_head_poisoned(head), 0);
    ligi_head_renew(head); /* the first renewal is of an unknown start of the machine */
    assert_int_equal(ligi_head_poisoned(head), 0);
    assert_true(ligi_head_sync_begin(head, 7));
    ligi_head_renew(head);
    assert_int_equal(ligi_head_poisoned(head), 7);
    ligi_head_release(head, LIGI_HEAD_SYNC);
}

static void hold_sync(void *context)
{
    log_scene *scene = context;
    log_scene_open(scene);
    assert_ok(ligi_head_take(&scene->log.head, LIGI_HEAD_SYNC, 0));
    assert_true(ligi_head_sync_begin(&scene->log.head, 5));
}

/* Nobody waits in the next epoch for a process that syncs in this one. */
static void epochs_have_their_own_sync_locks(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;

    pid_t child = child_start(hold_sync, scene);
    assert_int_equal(ligi_head_take(head, LIGI_HEAD_SYNC, 0), LIG_E_TIMEOUT);
    assert_false(ligi_head_stopped(head, LIGI_HEAD_SYNC));
    freeze(child);
    assert_true(ligi_head_stopped(head, LIGI_HEAD_SYNC));
    ligi_head_epoch_next(head, 0, 1);
    assert_ok(ligi_head_take(head, LIGI_HEAD_SYNC, 0));
    ligi_head_epoch_next(head, 0, 1); /* meanwhile */
    assert_false(ligi_head_sync_begin(head, 5));
    ligi_head_release(head, LIGI_HEAD_SYNC);
    child_kill(child);
}

/* Whoever opens the store alone trusts the index only if it is exactly the file that was left. */
static void the_index_is_vouched_for(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;
    char path[128], head_path[128];
    struct stat info;

    snprintf(path, sizeof path, "%s/index.mdb", scene->place);
    snprintf(head_path, sizeof head_path, "%s/log/head", scene->place);
    int fd = open(head_path, O_RDONLY | O_CLOEXEC);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    assert_int_equal(stat(path, &info), 0);
    ligi_head_renew(head);
    assert_false(ligi_head_left(head, &info));
    assert_false(ligi_head_vouches(fd, &info));
    ligi_head_leave(head, &info);
    assert_true(ligi_head_left(head, &info));
    assert_true(ligi_head_vouches(fd, &info));
    info.st_size++;
    assert_false(ligi_head_left(head, &info));
    info.st_size--;
    info.st_ctim.tv_nsec ^= 1;
    assert_false(ligi_head_vouches(fd, &info));
    info.st_ctim.tv_nsec ^= 1;
    ligi_head_unleave(head);
    assert_false(ligi_head_left(head, &info));
    pid_t child = child_start(attach_shared, scene); /* in use: LMDB keeps it whole */
    assert_true(ligi_head_vouches(fd, &info));
    child_kill(child);
    assert_false(ligi_head_vouches(fd, &info));
    assert_ok(ligi_head_attach(head, 1, 0)); /* may be rebuilding it */
    assert_false(ligi_head_vouches(fd, &info));
    close(fd);
}

static void ring_later(void *context)
{
    log_scene *scene = context;

    log_scene_open(scene);
    ligi_head_append(&scene->log.head, 9);
}

static void what_is_published_wakes(void **state)
{
    log_scene *scene = *state;
    ligi_head *head = &scene->log.head;

    uint32_t seen = ligi_head_bell(head);
    pid_t child = child_start(ring_later, scene);
    ligi_head_wait(head, seen, 60 * SECOND); /* it rang already: returns at once */
    assert_int_equal(ligi_head_appended(head), 9);
    ligi_head_append(head, 4);
    assert_int_equal(ligi_head_appended(head), 9);
    child_kill(child);
}

/* A head of any content is a head: it never is the only copy of anything. */
static void foreign_pages(void **state)
{
    log_scene *scene = *state;
    char path[128];
    uint8_t page[4096];

    log_scene_close(scene);
    snprintf(path, sizeof path, "%s/log/head", scene->place);
    const off_t sizes[] = {0, 1, 100, 4095};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        log_scene_open(scene);
        assert_int_equal(ligi_head_synced(&scene->log.head), 0);
        assert_ok(ligi_head_take(&scene->log.head, LIGI_HEAD_WRITE, 0));
        ligi_head_release(&scene->log.head, LIGI_HEAD_WRITE);
        log_scene_close(scene);
    }
    memset(page, 0xA5, sizeof page);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, page, sizeof page), (ssize_t)sizeof page);
    close(fd);
    log_scene_open(scene);
    ligi_head_renew(&scene->log.head);
    assert_int_equal(ligi_head_synced(&scene->log.head), 0);
    assert_int_equal(ligi_head_poisoned(&scene->log.head), 0);
    assert_ok(ligi_head_take(&scene->log.head, LIGI_HEAD_WRITE, 0));
    ligi_head_release(&scene->log.head, LIGI_HEAD_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(locks_end_with_their_process),
        log_test(threads_exclude_each_other),
        log_test(processes_exclude_each_other),
        log_test(the_first_and_the_last_are_alone),
        log_test(witnesses),
        log_test(interrupted_syncs_poison),
        log_test(epochs_have_their_own_sync_locks),
        log_test(the_index_is_vouched_for),
        log_test(what_is_published_wakes),
        log_test(foreign_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
