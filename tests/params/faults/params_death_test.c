/* A node is killed, whatever the others do: each of their calls ends with LIG_E_PEER, and the job
 * that is restarted from its last save continues exactly. */
#include "params/params_peers.h"

#include <sched.h>

enum { NODES = 3, KEYS = 600, LENGTH = 4, DEATHS = 4 };

typedef struct scene {
    peers_store at;
    uint32_t victim;
    int phase;
} scene;

static void scene_open(scene *made)
{
    *made = (scene){0};
    peers_store_open(&made->at);
}

/* Whatever died while it wrote: what is there is sound. */
static void check_store(const scene *made)
{
    lig_store *store;
    lig_report *report;
    assert_ok(lig_store_open(&store, made->at.uri));
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    assert_int_equal(report->leftover_bytes, 0);
    lig_report_destroy(report);
    lig_store_close(store);
}

static peers job_of(scene *made, const char *transport, const lig_params_table *table,
                    int (*run)(peers *job, lig_params *node))
{
    peers job = peers_of(NODES, table, transport, run);
    job.context = made;
    job.options.dtype = LIG_INT64;
    return job;
}

/* --- what the others are at --- */

typedef struct player {
    peers *job;
    lig_params *node;
    lig_params_worker *worker;
    scene *made;
    uint64_t turn;
} player;

static lig_status at_barrier(player *self)
{
    return lig_params_barrier(self->node, PEERS_TIMEOUT_NS);
}

static lig_status at_worker_barrier(player *self)
{
    return lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS);
}

static lig_status at_pull(player *self)
{
    int64_t key = (int64_t)(self->turn * 7 % KEYS), values[LENGTH], ticket;
    LIG_TRY(lig_params_pull(self->worker, &key, 1, values, LENGTH, &ticket));
    return lig_params_wait(self->worker, ticket, PEERS_TIMEOUT_NS);
}

static lig_status at_push(player *self)
{
    int64_t keys[KEYS], values[KEYS * LENGTH] = {0}, ticket;
    for (int i = 0; i < KEYS; i++)
        keys[i] = i;
    LIG_TRY(lig_params_push(self->worker, keys, KEYS, values, KEYS * LENGTH, &ticket));
    return self->turn % 4 ? LIG_OK : lig_params_wait_all(self->worker, PEERS_TIMEOUT_NS);
}

static lig_status at_flush(player *self)
{
    LIG_TRY(at_push(self));
    return lig_params_flush(self->worker, PEERS_TIMEOUT_NS);
}

static lig_status at_wait_sync(player *self)
{
    LIG_TRY(at_push(self));
    return lig_params_wait_sync(self->worker, PEERS_TIMEOUT_NS);
}

/* Rows come and go all the time. */
static lig_status at_moves(player *self)
{
    int64_t keys[60], now = lig_params_advance_clock(self->worker);
    for (int i = 0; i < 60; i++)
        keys[i] = (int64_t)((self->turn * 13 + (uint64_t)i * 7) % KEYS);
    LIG_TRY(lig_params_intent(self->worker, keys, 60, now + 2, now + 5));
    LIG_TRY(at_push(self));
    return at_pull(self);
}

static lig_status at_save(player *self)
{
    return lig_params_save(self->node, self->made->at.uri, "m", PEERS_TIMEOUT_NS);
}

static lig_status at_load(player *self)
{
    return lig_params_load(self->node, self->made->at.uri, "first", PEERS_TIMEOUT_NS);
}

static lig_status at_setup(player *self)
{
    LIG_TRY(lig_params_begin_setup(self->worker, PEERS_TIMEOUT_NS));
    return lig_params_end_setup(self->worker, PEERS_TIMEOUT_NS);
}

static lig_status (*const phases[])(player *self) = {
    at_barrier,   at_worker_barrier, at_pull, at_push, at_flush,
    at_wait_sync, at_moves,          at_save, at_load, at_setup,
};
enum { PHASES = sizeof phases / sizeof phases[0] };

/* What is left of a job whose node has gone. */
static void check_rest(player *self)
{
    int64_t key = self->job->rank, values[LENGTH];
    int local = 0;
    peer_ok(lig_params_pull_if_local(self->worker, &key, 1, values, LENGTH, &local));
    peer_true(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS) == LIG_E_PEER);
    peer_true(lig_params_save(self->node, self->made->at.uri, "n", PEERS_TIMEOUT_NS) == LIG_E_PEER);
    peer_true(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS) == LIG_E_PEER);
}

static int play(peers *job, lig_params *node)
{
    scene *made = job->context;
    player self = {.job = job, .node = node, .made = made};
    peer_ok(lig_params_worker_open(&self.worker, node, 0));
    peer_ok(lig_params_save(node, made->at.uri, "first", PEERS_TIMEOUT_NS));
    lig_status status = LIG_OK;
    while (status == LIG_OK) {
        self.turn++;
        atomic_fetch_add(&job->shared->numbers[job->rank], 1);
        status = phases[made->phase](&self);
    }
    if (status != LIG_E_PEER)
        peer_fail("phase %d: %s: %s", made->phase, lig_status_name(status), lig_error_text());
    check_rest(&self);
    lig_params_worker_close(self.worker);
    return 0;
}

/* Of every node. */
static void wait_for_turns(const peers *job, int64_t turns)
{
    for (uint32_t i = 0; i < NODES; i++)
        while (atomic_load(&job->shared->numbers[i]) < turns)
            sched_yield();
}

static void check_ends(peers *job, uint32_t victim)
{
    for (uint32_t i = 0; i < NODES; i++) {
        int ended = peers_wait(job, i);
        if (i == victim)
            assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        else if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
            fail_msg("node %u: %s %d", i, WIFEXITED(ended) ? "exit status" : "signal",
                     WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
    }
}

static void kill_in_all_phases(const char *transport)
{
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    scene made;
    scene_open(&made);
    for (made.phase = 0; made.phase < PHASES; made.phase++)
        for (made.victim = 0; made.victim < 2; made.victim++) {
            peers job = job_of(&made, transport, &table, play);
            peers_make(&job);
            peers_start(&job);
            wait_for_turns(&job, 5 + made.phase);
            kill(job.pids[made.victim], SIGKILL);
            check_ends(&job, made.victim);
            peers_end(&job);
        }
    check_store(&made);
    peers_store_close(&made.at);
}

static void test_shm(void **state)
{
    (void)state;
    kill_in_all_phases("shm");
}

static void test_tcp(void **state)
{
    (void)state;
    kill_in_all_phases("tcp");
}

/* --- again from the save --- */

/* Each step adds 1 to every key from every node, with rows that move; after it all is saved. So in
 * a save all keys have the same value, a multiple of the number of nodes. */
static lig_status step(player *self)
{
    int64_t keys[KEYS], values[KEYS * LENGTH], now = lig_params_current_clock(self->worker), ticket;
    for (int i = 0; i < KEYS; i++)
        keys[i] = i;
    for (int i = 0; i < KEYS * LENGTH; i++)
        values[i] = 1;
    LIG_TRY(lig_params_intent(self->worker, keys + self->job->rank * 100, 300, now, now + 2));
    for (int at = 0; at < KEYS; at += 50)
        LIG_TRY(lig_params_push(self->worker, keys + at, 50, values, 50 * LENGTH, &ticket));
    lig_params_advance_clock(self->worker);
    LIG_TRY(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS));
    atomic_fetch_add(&self->job->shared->numbers[self->job->rank], 1);
    LIG_TRY(lig_params_save(self->node, self->made->at.uri, "m", PEERS_TIMEOUT_NS));
    return lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS);
}

/* How many steps there have been, by what the rows say. */
static int64_t steps_done(player *self)
{
    int64_t first = -1;
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t values[LENGTH], ticket;
        peer_ok(lig_params_pull(self->worker, &key, 1, values, LENGTH, &ticket));
        peer_ok(lig_params_wait(self->worker, ticket, PEERS_TIMEOUT_NS));
        first = key == 0 ? values[0] : first;
        for (int i = 0; i < LENGTH; i++)
            if (values[i] != first || first % NODES != 0)
                peer_fail("key %lld has %lld, key 0 has %lld", (long long)key, (long long)values[i],
                          (long long)first);
    }
    peer_ok(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS));
    return first / NODES;
}

static int steps(peers *job, lig_params *node)
{
    scene *made = job->context;
    player self = {.job = job, .node = node, .made = made};
    peer_ok(lig_params_worker_open(&self.worker, node, 0));
    lig_status status = lig_params_load(node, made->at.uri, "m", PEERS_TIMEOUT_NS);
    peer_true(status == LIG_OK || (made->phase == 0 && status == LIG_E_NOTFOUND));
    int64_t done = steps_done(&self);
    int64_t before = atomic_load(&job->shared->numbers[NODES]);
    if (done < before)
        peer_fail("%lld steps were saved, %lld are there", (long long)before, (long long)done);
    int64_t last = made->phase < DEATHS ? INT64_MAX : done + 3;
    for (status = LIG_OK; status == LIG_OK && done < last;) {
        status = step(&self);
        if (status == LIG_OK)
            atomic_store(&job->shared->numbers[NODES], ++done);
    }
    if (status == LIG_OK)
        peer_true(steps_done(&self) == done);
    else if (status != LIG_E_PEER)
        peer_fail("%s: %s", lig_status_name(status), lig_error_text());
    lig_params_worker_close(self.worker);
    if (status == LIG_OK)
        peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

/* Is killed every few steps, at another moment each time; then it ends well. */
static void test_again_from_the_save(void **state)
{
    (void)state;
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    scene made;
    scene_open(&made);
    peers job = job_of(&made, "shm", &table, steps);
    peers_make(&job);
    for (; made.phase < DEATHS; made.phase++) {
        for (int i = 0; i < NODES; i++)
            atomic_store(&job.shared->numbers[i], 0);
        made.victim = (uint32_t)made.phase % NODES;
        peers_start(&job);
        wait_for_turns(&job, 2);
        kill(job.pids[made.victim], SIGKILL);
        check_ends(&job, made.victim);
    }
    peers_run(&job);
    peers_end(&job);
    check_store(&made);
    peers_store_close(&made.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_again_from_the_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
