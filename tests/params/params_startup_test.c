/* Jobs start and end under load, again and again, without one that hangs: `params_startup_test` a
 * few times, `params_startup_test soak` a hundred times. */
#include "params/params_peers.h"

#include <sched.h>

enum { NODES = 4, KEYS = 100, LOADS = 3 };

static int starts = 3;

static int work(peers_worker *self)
{
    int64_t key = (int64_t)(self->job->rank * 10 + self->id), values[2] = {1, 1}, ticket;
    for (int i = 0; i < 20; i++, key = (key + 7) % KEYS) {
        peer_ok(lig_params_intent(self->worker, &key, 1, i + 1, i + 4));
        peer_ok(lig_params_push(self->worker, &key, 1, values, 2, &ticket));
        lig_params_advance_clock(self->worker);
    }
    peer_ok(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS));
    return 0;
}

/* Nodes are late by turns, so that each order of coming and going is seen. */
static int run(peers *job, lig_params *node)
{
    int *turn = job->context;
    int result = peers_workers(job, node, work);
    for (int i = 0; i < (int)(job->rank + (uint32_t)*turn) % NODES * 50; i++)
        sched_yield();
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

static void load_start(pid_t *pids)
{
    for (int i = 0; i < LOADS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint64_t spin = 0;; spin++)
                ;
        }
    }
}

static void load_stop(const pid_t *pids)
{
    for (int i = 0; i < LOADS; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static void start_often(const char *transport)
{
    lig_params_table table = {.key_count = KEYS, .length = 2};
    pid_t pids[LOADS];
    load_start(pids);
    for (int turn = 0; turn < starts; turn++) {
        peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run, .context = &turn};
        job.options.node_count = NODES;
        job.options.worker_count = 2;
        job.options.tables = &table;
        job.options.table_count = 1;
        job.options.dtype = LIG_INT64;
        job.options.transport = transport;
        peers_run(&job);
    }
    load_stop(pids);
}

static void test_shm(void **state)
{
    (void)state;
    start_often("shm");
}

static void test_tcp(void **state)
{
    (void)state;
    start_often("tcp");
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "soak") == 0)
        starts = 100;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shm), cmocka_unit_test(test_tcp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
