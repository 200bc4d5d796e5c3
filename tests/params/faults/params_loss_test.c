/* Nodes that do not fit, do not come, die or leave: everybody else hears of it, and nothing hangs.
 */
#include "base/test.h"
#include "params/params_scene.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { KEYS = 60, LENGTH = 4 };
#define LIVENESS_NS INT64_C(4000000000) /* longer than a machine that is busy stands still */

static const lig_params_table table[] = {{.name = "rows", .key_count = KEYS, .length = LENGTH}};

static int pull_all(lig_params_worker *worker, int64_t timeout_ns)
{
    int64_t keys[KEYS], ticket = LIG_PARAMS_LOCAL;
    float rows[KEYS * LENGTH];
    for (int64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    memset(rows, 0, sizeof rows);
    lig_status status = lig_params_push(worker, keys, KEYS, rows, KEYS * LENGTH, &ticket);
    return status == LIG_OK ? (int)lig_params_wait(worker, ticket, timeout_ns) : (int)status;
}

static int open_and_try(scene_node *self, lig_params **params, lig_params_worker **worker)
{
    PLAY_OK(lig_params_open(params, &self->options));
    PLAY_OK(lig_params_worker_open(worker, *params, 0));
    PLAY(pull_all(*worker, SCENE_MINUTE) == LIG_OK);
    PLAY_OK(lig_params_worker_barrier(*worker, SCENE_MINUTE));
    return 0;
}

static int read_own(scene_node *self, lig_params_worker *worker, uint32_t rank)
{
    int64_t key = rank, ticket;
    float row[LENGTH];
    PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
    PLAY(ticket == LIG_PARAMS_LOCAL);
    return 0;
}

/* Shared by the processes of a loss. */
typedef struct loss {
    int stop;                      /* the last one freezes, and does not die */
    _Atomic uint32_t begun, heard; /* survivors who have met the others; who know what happened */
} loss;

static void all_survivors(const scene_node *self, _Atomic uint32_t *count)
{
    while (atomic_load(count) < self->options.node_count - 1)
        sched_yield();
}

/* The last one goes without a word, once all have met; the others find out, from whatever they do,
 * and can still read what they have. None goes before all have found out: it would be missed too.
 */
static int play_survivor(scene_node *self)
{
    loss *shared = self->context;
    alarm(60); /* one that failed is not waited for */
    lig_params *params;
    lig_params_worker *worker;
    int line = open_and_try(self, &params, &worker);
    if (line)
        return line;
    uint32_t rank = lig_params_rank(params);
    if (rank == self->options.node_count - 1) {
        all_survivors(self, &shared->begun);
        kill(getpid(), shared->stop ? SIGSTOP : SIGKILL);
        return 0; /* stopped, it is woken and dies */
    }
    atomic_fetch_add(&shared->begun, 1);
    lig_status status;
    switch (rank) {
    case 0: status = lig_params_worker_barrier(worker, SCENE_MINUTE); break;
    case 1: status = lig_params_barrier(params, SCENE_MINUTE); break;
    default:
        do
            status = (lig_status)pull_all(worker, SCENE_MINUTE);
        while (status == LIG_OK);
    }
    PLAY(status == LIG_E_PEER);
    char part[16];
    snprintf(part, sizeof part, "%u", self->options.node_count - 1);
    snprintf(self->reports, sizeof self->reports, "%s", lig_error_text());
    if (strstr(self->reports, part) == NULL)
        return __LINE__;
    atomic_fetch_add(&shared->heard, 1);
    all_survivors(self, &shared->heard);
    PLAY(lig_params_worker_barrier(worker, SCENE_MINUTE) == LIG_E_PEER);
    PLAY(pull_all(worker, SCENE_MINUTE) == LIG_E_PEER);
    PLAY(lig_params_worker_finalize(worker, SCENE_MINUTE) == LIG_E_PEER);
    line = read_own(self, worker, rank);
    if (line)
        return line;
    lig_params_worker_close(worker);
    PLAY(lig_params_shutdown(params, SCENE_MINUTE) == LIG_E_PEER);
    PLAY(lig_params_shutdown(params, SCENE_MINUTE) == LIG_E_CLOSED);
    lig_params_close(params);
    return 0;
}

static void lose_one(const char *transport, int stop)
{
    scene now;
    pid_t children[SCENE_NODES_MAX];
    loss *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    shared->stop = stop;
    scene_init(&now, 4, transport, table, 1);
    for (uint32_t i = 0; i < 4; i++) {
        if (stop)
            now.nodes[i].options.liveness_ns = LIVENESS_NS;
        now.nodes[i].context = shared;
        now.nodes[i].play = play_survivor;
        children[i] = scene_fork(&now.nodes[i], i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    kill(children[3], SIGKILL);
    assert_int_equal(waitpid(children[3], NULL, 0), children[3]);
    munmap(shared, sizeof *shared);
}

static void test_a_node_that_is_killed_is_everybodys_end(void **unused)
{
    (void)unused;
    lose_one("shm", 0);
    lose_one("tcp", 0);
}

static void test_a_node_that_is_frozen_is_lost(void **unused)
{
    (void)unused;
    lose_one("shm", 1);
    lose_one("tcp", 1);
}

/* A node that receives the leave before the end of the barrier gets the error of the leave. */
static int play_deserter(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    PLAY_OK(lig_params_open(&params, &self->options));
    PLAY_OK(lig_params_worker_open(&worker, params, 0));
    PLAY(pull_all(worker, SCENE_MINUTE) == LIG_OK);
    lig_status met = lig_params_worker_barrier(worker, SCENE_MINUTE);
    PLAY(met == LIG_OK || (lig_params_rank(params) != 1 && met == LIG_E_PEER));
    if (lig_params_rank(params) != 1) {
        PLAY(lig_params_worker_barrier(worker, SCENE_MINUTE) == LIG_E_PEER);
        PLAY(pull_all(worker, SCENE_MINUTE) == LIG_E_PEER);
    }
    lig_params_worker_close(worker);
    lig_params_close(params);
    return 0;
}

static void test_a_node_that_closes_early_is_missed(void **unused)
{
    (void)unused;
    scene now;
    scene_init(&now, 3, "inproc", table, 1);
    assert_int_equal(scene_threads(&now, play_deserter), 0);
    scene_init(&now, 3, "shm", table, 1);
    assert_int_equal(scene_processes(&now, play_deserter), 0);
}

static int play_misfit(scene_node *self)
{
    lig_params *params = NULL;
    const char *expected = self->context;
    lig_status status = lig_params_open(&params, &self->options);
    PLAY(params == NULL);
    snprintf(self->reports, sizeof self->reports, "%s", lig_error_text());
    if (status != LIG_E_MISMATCH || strstr(self->reports, expected) == NULL)
        return __LINE__;
    return 0;
}

static void fit_two(const lig_params_options *other, const char *expected)
{
    scene now;
    scene_init(&now, 2, "inproc", table, 1);
    lig_params_options *options = &now.nodes[1].options;
    options->tables = other->tables;
    options->dtype = other->dtype;
    options->techniques = other->techniques;
    options->worker_count = other->worker_count;
    now.nodes[0].context = now.nodes[1].context = (void *)(uintptr_t)expected;
    assert_int_equal(scene_threads(&now, play_misfit), 0);
}

static void test_what_does_not_fit_is_named(void **unused)
{
    (void)unused;
    lig_params_table changed = table[0];
    lig_params_options other = LIG_PARAMS_OPTIONS_INIT;
    other.tables = table;
    other.techniques = LIG_PARAMS_RELOCATION_ONLY;
    fit_two(&other, "techniques");
    other.techniques = 0;
    other.dtype = LIG_FLOAT64;
    fit_two(&other, "dtype");
    other.dtype = LIG_FLOAT32;
    other.worker_count = 2;
    fit_two(&other, "number of workers");
    other.worker_count = 1;
    other.tables = &changed;
    changed.length = 5;
    fit_two(&other, "lengths");
    changed = table[0];
    changed.optimizer = (lig_params_optimizer){.kind = LIG_PARAMS_SGD, .lr = 1};
    fit_two(&other, "optimizer");
    changed = table[0];
    changed.init = (lig_params_init){.kind = LIG_PARAMS_UNIFORM, .b = 1};
    fit_two(&other, "init");
}

static int play_lonely(scene_node *self)
{
    lig_params *params = NULL;
    lig_status status = lig_params_open(&params, &self->options);
    PLAY(status == LIG_E_TIMEOUT || (self->options.rank == 1 && status == LIG_E_PEER));
    PLAY(params == NULL);
    return 0;
}

static void test_who_waits_for_nobody_gives_up(void **unused)
{
    (void)unused;
    scene now;
    scene_init(&now, 3, "inproc", table, 1);
    now.nodes[0].options.timeout_ns = now.nodes[1].options.timeout_ns = 200000000;
    now.count = 2;
    assert_int_equal(scene_threads(&now, play_lonely), 0);
}

static int play_patient(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int line = open_and_try(self, &params, &worker);
    if (line)
        return line;
    lig_params_worker_close(worker);
    if (lig_params_rank(params) == 0)
        PLAY(lig_params_shutdown(params, 20000000) == LIG_E_TIMEOUT);
    pthread_barrier_wait(self->context);
    PLAY_OK(lig_params_shutdown(params, SCENE_MINUTE));
    PLAY(lig_params_shutdown(params, SCENE_MINUTE) == LIG_E_CLOSED);
    lig_params_close(params);
    return 0;
}

static void test_shutdown_waits_for_the_others_and_may_be_tried_again(void **unused)
{
    (void)unused;
    pthread_barrier_t barrier;
    scene now;
    pthread_barrier_init(&barrier, NULL, 3);
    scene_init(&now, 3, "inproc", table, 1);
    for (uint32_t i = 0; i < 3; i++)
        now.nodes[i].context = &barrier;
    assert_int_equal(scene_threads(&now, play_patient), 0);
    pthread_barrier_destroy(&barrier);
}

static int play_child(lig_params *params, lig_params_worker *worker)
{
    if (pull_all(worker, 0) != LIG_E_CLOSED || lig_params_barrier(params, 0) != LIG_E_CLOSED ||
        lig_params_worker_finalize(worker, 0) != LIG_E_CLOSED ||
        lig_params_shutdown(params, 0) != LIG_E_CLOSED)
        return 1;
    lig_params_worker_close(worker);
    lig_params_close(params);
    return 0;
}

static int play_fork(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int status = -1, line = open_and_try(self, &params, &worker);
    if (line)
        return line;
    pid_t child = fork();
    if (child == 0)
        _exit(play_child(params, worker));
    PLAY(waitpid(child, &status, 0) == child && status == 0);
    PLAY(pull_all(worker, SCENE_MINUTE) == LIG_OK); /* the parent continues */
    PLAY_OK(lig_params_worker_finalize(worker, SCENE_MINUTE));
    lig_params_worker_close(worker);
    PLAY_OK(lig_params_shutdown(params, SCENE_MINUTE));
    lig_params_close(params);
    return 0;
}

static void test_a_forked_child_is_silent(void **unused)
{
    (void)unused;
    scene now;
    scene_init(&now, 2, "shm", table, 1);
    assert_int_equal(scene_processes(&now, play_fork), 0);
    scene_init(&now, 2, "tcp", table, 1);
    assert_int_equal(scene_processes(&now, play_fork), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_fit_is_named),
        cmocka_unit_test(test_who_waits_for_nobody_gives_up),
        cmocka_unit_test(test_shutdown_waits_for_the_others_and_may_be_tried_again),
        cmocka_unit_test(test_a_node_that_closes_early_is_missed),
        cmocka_unit_test(test_a_node_that_is_killed_is_everybodys_end),
        cmocka_unit_test(test_a_node_that_is_frozen_is_lost),
        cmocka_unit_test(test_a_forked_child_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
