/* A node that does not read for a while delays only the nodes that send requests to it. */
#include "params/params_peers.h"
#include "thread_state.h"

#include <sched.h>

enum { LENGTH = 16384, NODES = 3, WORKERS = 2, LETTERS = 500, HOST = 1, SLOW = 2 };

static const lig_params_table table = {.key_count = 30, .length = LENGTH};
static const int64_t of_host = HOST, of_slow = SLOW;

static int has_stopped(pid_t pid)
{
    char where[24];
    snprintf(where, sizeof where, "%d", (int)pid);
    char state = thread_state(where);
    peer_true(state != '\0');
    return state == 'T';
}

/* Its owner wants the row as well, so that this is a copy. */
static void get_copy(lig_params_worker *worker, float *row)
{
    int local = 0;
    peer_ok(lig_params_intent(worker, &of_host, 1, 0, LIG_PARAMS_FOREVER_CLOCK));
    while (!local) {
        peer_ok(lig_params_pull_if_local(worker, &of_host, 1, row, LENGTH, &local));
        sched_yield();
    }
}

/* Messages for one node wait on its link, more than go into the buffers on the way. */
static void crowd(lig_params_worker *worker, const float *row)
{
    for (int i = 0; i < LETTERS; i++) {
        int64_t ticket;
        peer_ok(lig_params_push(worker, &of_slow, 1, row, LENGTH, &ticket));
    }
}

static void push_to_copy(peers *job, lig_params *node)
{
    static float row[LENGTH];
    lig_params_worker *first, *second;
    pid_t slow = (pid_t)job->shared->numbers[SLOW];
    int64_t ticket;

    peer_ok(lig_params_worker_open(&first, node, 0));
    peer_ok(lig_params_worker_open(&second, node, 1));
    get_copy(second, row);
    peer_true(kill(slow, SIGSTOP) == 0);
    while (!has_stopped(slow))
        sched_yield();
    crowd(first, row);
    peer_ok(lig_params_push(second, &of_host, 1, row, LENGTH, &ticket));
    peer_true(ticket == LIG_PARAMS_LOCAL);
    lig_status status = lig_params_wait_sync(second, PEERS_TIMEOUT_NS / 4);
    peer_true(kill(slow, SIGCONT) == 0);
    peer_ok(status);
    lig_params_worker_close(second);
    peer_ok(lig_params_wait_all(first, PEERS_TIMEOUT_NS));
    lig_params_worker_close(first);
}

static int run(peers *job, lig_params *node)
{
    lig_params_worker *worker = NULL;

    job->shared->numbers[job->rank] = getpid();
    if (job->rank == HOST) {
        peer_ok(lig_params_worker_open(&worker, node, 0));
        peer_ok(lig_params_intent(worker, &of_host, 1, 0, LIG_PARAMS_FOREVER_CLOCK));
        peer_ok(lig_params_wait_sync(worker, PEERS_TIMEOUT_NS));
    }
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
    if (job->rank == 0)
        push_to_copy(job, node);
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static void test_settles_beside_a_crowded_link(void **state)
{
    (void)state;
    peers job = peers_of(NODES, &table, "tcp", run);
    job.options.worker_count = WORKERS;
    job.options.liveness_ns = PEERS_TIMEOUT_NS;
    peers_run(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settles_beside_a_crowded_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
