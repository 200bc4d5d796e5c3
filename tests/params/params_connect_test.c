/* Barriers and ends of workers: nobody is taken for one who came for something else, and nobody
 * waits for those who do not come any more. */
#include "params/params_peers.h"

enum { WORKERS = 2 };

static const lig_params_table table = {.key_count = 16, .length = 2};

static void play(uint32_t nodes, const char *transport, int (*run)(peers *, lig_params *))
{
    peers job = peers_of(nodes, &table, transport, run);
    job.options.worker_count = WORKERS;
    peers_run(&job);
}

static void expect_refused(lig_params_worker *worker, const char *words)
{
    lig_status status = lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS);
    if (status != LIG_E_INVALID || strstr(lig_error_text(), words) == NULL)
        peer_fail("%s: '%s', and not '%s'", lig_status_name(status), lig_error_text(), words);
}

/* One finalizes while the other waits at a barrier, before it or after. */
static int end_and_wait(peers_worker *self)
{
    for (int round = 0; round < 20; round++)
        peer_ok(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS));
    if (self->id == 1)
        expect_refused(self->worker, "1 of the 2 workers of node");
    peer_ok(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run_in_a_node(peers *job, lig_params *node)
{
    int result = peers_workers(job, node, end_and_wait);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

/* All of one node finalize, and all of the others wait at a barrier. */
static int end_or_wait(peers_worker *self)
{
    peer_ok(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS));
    if (self->job->rank > 0)
        expect_refused(self->worker, "server 0 is already at a later one");
    peer_ok(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run_across(peers *job, lig_params *node)
{
    int result = peers_workers(job, node, end_or_wait);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

/* Node 0 leaves: its workers count as finalized, and the others find out at a barrier. */
static int leave_or_wait(peers_worker *self)
{
    peer_ok(lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS));
    if (self->job->rank == 0)
        return 0;
    expect_refused(self->worker, "server 0 is already at a later one");
    peer_ok(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run_leaving(peers *job, lig_params *node)
{
    int result = peers_workers(job, node, leave_or_wait);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

/* Who gives up finalizing may come to barriers again. */
static int end_too_early(peers_worker *self)
{
    if (self->id == 0)
        peer_true(lig_params_worker_finalize(self->worker, 1000000) == LIG_E_TIMEOUT);
    while (lig_params_worker_barrier(self->worker, PEERS_TIMEOUT_NS) == LIG_E_INVALID)
        ;
    peer_ok(lig_params_worker_finalize(self->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run_too_early(peers *job, lig_params *node)
{
    int result = peers_workers(job, node, end_too_early);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

static void test_in_a_node(void **state)
{
    (void)state;
    play(1, NULL, run_in_a_node);
    play(2, "shm", run_in_a_node);
}

static void test_across_nodes(void **state)
{
    (void)state;
    play(2, "shm", run_across);
    play(3, "tcp", run_across);
}

static void test_leaving(void **state)
{
    (void)state;
    play(2, "shm", run_leaving);
    play(3, "tcp", run_leaving);
}

static void test_too_early(void **state)
{
    (void)state;
    play(1, NULL, run_too_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_node),
        cmocka_unit_test(test_across_nodes),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
