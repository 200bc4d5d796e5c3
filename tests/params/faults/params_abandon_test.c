/* Requests that nobody waits for any more: what was lent to a peer for them stays as it is until
 * the peer has read it, and their answers are nobody else's. */
#include "params/params_peers.h"

enum { LENGTH = 1024, BATCH = 10, FIRST = 0, SECOND = 100, KEYS = 400, ROOM = 8 };

static const lig_params_table table = {.key_count = KEYS, .length = LENGTH};

/* Keys of node 1. */
static void fill(int64_t *keys, float *values, int64_t from, float value)
{
    for (int64_t i = 0; i < BATCH; i++) {
        keys[i] = 2 * (from + i) + 1;
        for (int64_t j = 0; j < LENGTH; j++)
            values[i * LENGTH + j] = value;
    }
}

static void expect(const float *values, float value)
{
    for (int64_t i = 0; i < BATCH * LENGTH; i++)
        if (values[i] != value)
            peer_fail("element %lld is %g, and not %g", (long long)i, (double)values[i],
                      (double)value);
}

/* The peer reads both pushes after the worker of the first is gone. */
static void push_and_go(peers *job, lig_params *node)
{
    static float values[BATCH * LENGTH];
    int64_t keys[BATCH], ticket;
    lig_params_worker *worker;
    pid_t other = (pid_t)job->shared->numbers[0];

    peer_ok(lig_params_worker_open(&worker, node, 0));
    peer_true(kill(other, SIGSTOP) == 0);
    fill(keys, values, FIRST, 1);
    peer_ok(lig_params_push(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    lig_params_worker_close(worker);
    peer_ok(lig_params_worker_open(&worker, node, 0));
    fill(keys, values, SECOND, 100);
    peer_ok(lig_params_push(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    peer_true(!lig_params_done(worker, ticket));
    peer_true(kill(other, SIGCONT) == 0);
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
    fill(keys, values, SECOND, 0);
    peer_ok(lig_params_pull(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
    expect(values, 100);
    fill(keys, values, FIRST, 0);
    peer_ok(lig_params_pull(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
    expect(values, 1);
    lig_params_worker_close(worker);
}

/* Node 0 does it; its pid and that of the other are known to both. */
static int run_left(peers *job, lig_params *node, void (*leave)(peers *, lig_params *))
{
    job->shared->numbers[job->rank == 1 ? 0 : 1] = getpid();
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
    if (job->rank == 0)
        leave(job, node);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static int run_pushes(peers *job, lig_params *node)
{
    return run_left(job, node, push_and_go);
}

static void a_push_that_was_left_takes_effect_once(void **state)
{
    (void)state;
    peers job = peers_of(2, &table, "shm", run_pushes);
    peers_run(&job);
}

/* Its answer comes to a worker of the same number that asks for other rows. */
static void pull_and_go(peers *job, lig_params *node)
{
    static float values[BATCH * LENGTH];
    int64_t keys[BATCH], ticket;
    lig_params_worker *worker;
    pid_t other = (pid_t)job->shared->numbers[0];

    peer_ok(lig_params_worker_open(&worker, node, 0));
    fill(keys, values, FIRST, 1);
    peer_ok(lig_params_set(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    fill(keys, values, SECOND, 2);
    peer_ok(lig_params_set(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_worker_open(&worker, node, 0));
    peer_true(kill(other, SIGSTOP) == 0);
    fill(keys, values, FIRST, 0);
    peer_ok(lig_params_pull(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    lig_params_worker_close(worker);
    peer_ok(lig_params_worker_open(&worker, node, 0));
    fill(keys, values, SECOND, 0);
    peer_ok(lig_params_pull(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
    peer_true(kill(other, SIGCONT) == 0);
    peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
    expect(values, 2);
    lig_params_worker_close(worker);
}

static int run_pulls(peers *job, lig_params *node)
{
    return run_left(job, node, pull_and_go);
}

static void a_pull_that_was_left_is_not_answered_to_another(void **state)
{
    (void)state;
    peers job = peers_of(2, &table, "tcp", run_pulls);
    peers_run(&job);
}

/* A worker on each node; node 1 has as many keys as it has room for when this returns. */
enum { FIRST_KEY = 1, ONE_MORE_KEY = 2 * ROOM + 1 };

static void fill_up(const peers *job, lig_params *node, lig_params_worker **worker)
{
    int64_t ticket, keys[ROOM];
    float value[ROOM] = {0};

    peer_ok(lig_params_worker_open(worker, node, 0));
    for (int64_t i = 0; i < ROOM; i++)
        keys[i] = FIRST_KEY + 2 * i;
    if (job->rank == 1)
        peer_ok(lig_params_push(*worker, keys, ROOM, value, ROOM, &ticket));
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
}

/* Node 1 has room for no more keys, so it refuses one push; a thousand that it takes follow. */
static int run_refused(peers *job, lig_params *node)
{
    int64_t ticket, known = FIRST_KEY, more = ONE_MORE_KEY;
    float value[ROOM] = {0};
    lig_params_worker *worker;

    fill_up(job, node, &worker);
    if (job->rank == 0) {
        peer_ok(lig_params_push(worker, &more, 1, value, 1, &ticket));
        for (int i = 0; i < 3000; i++)
            peer_ok(lig_params_push(worker, &known, 1, value, 1, &ticket));
        peer_true(lig_params_wait_all(worker, PEERS_TIMEOUT_NS) == LIG_E_LIMIT);
        peer_true(strstr(lig_error_text(), "node 1: ") != NULL);
        peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
    }
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static void await_move(lig_params *node)
{
    lig_params_stats stats = {0};
    while (stats.relocations_in == 0) {
        peer_ok(lig_params_stats_get(node, &stats));
        sched_yield();
    }
}

/* An intent is a hint: without room for the key it is ignored. */
static int run_intent(peers *job, lig_params *node)
{
    int64_t ticket, known = FIRST_KEY, more = ONE_MORE_KEY;
    float value[ROOM] = {0};
    lig_params_worker *worker;

    fill_up(job, node, &worker);
    if (job->rank == 0) {
        peer_ok(lig_params_intent(worker, &more, 1, 0, 10));
        peer_ok(lig_params_intent(worker, &known, 1, 0, 10));
        await_move(node); /* both intents have been told by then */
        lig_status status = lig_params_pull(worker, &more, 1, value, 1, &ticket);
        if (status == LIG_OK)
            status = lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS);
        peer_true(status == LIG_E_LIMIT);
    }
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static void an_intent_for_which_there_is_no_room_is_ignored(void **state)
{
    static const lig_params_table small = {.key_count = ROOM, .length = 1};
    (void)state;
    peers job = peers_of(2, &table, "shm", run_intent);
    job.options.flags = LIG_PARAMS_HASHED;
    job.options.tables = &small;
    peers_run(&job);
}

static void a_failure_that_was_not_waited_for_is_told(void **state)
{
    static const lig_params_table small = {.key_count = ROOM, .length = 1};
    (void)state;
    peers job = peers_of(2, &table, "shm", run_refused);
    job.options.flags = LIG_PARAMS_HASHED;
    job.options.tables = &small;
    peers_run(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_that_was_left_takes_effect_once),
        cmocka_unit_test(a_pull_that_was_left_is_not_answered_to_another),
        cmocka_unit_test(a_failure_that_was_not_waited_for_is_told),
        cmocka_unit_test(an_intent_for_which_there_is_no_room_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
