/* Shutdown while workers of the node are at work: what they wait for ends, and nothing that they
 * close is looked at. */
#include "params/params_peers.h"
#include "params/state/node.h"

enum { KEYS = 64, ROUNDS = 20 };

static const lig_params_table table = {.key_count = KEYS, .length = 4};

static peers job_of(uint32_t nodes, uint32_t workers, int (*run)(peers *, lig_params *))
{
    peers job = peers_of(nodes, &table, "shm", run);
    job.options.worker_count = workers;
    return job;
}

/* What shutdown waits for, of every worker, so that it comes in the middle. */
static void begun(const peers_worker *self)
{
    atomic_fetch_or(&self->job->shared->numbers[self->job->rank], 1 << self->id);
}

static void await_inside(lig_params *node)
{
    for (uint32_t inside = 0; inside == 0; sched_yield()) {
        pthread_mutex_lock(&node->barrier.lock);
        inside = node->barrier.inside[LIGI_BARRIER_PLAIN];
        pthread_mutex_unlock(&node->barrier.lock);
    }
}

/* Another worker never comes: it tells that the first waits. */
static int wait_in_barrier(peers_worker *self)
{
    if (self->id == 1) {
        await_inside(self->node);
        begun(self);
        return 0;
    }
    begun(self);
    lig_status status = lig_params_worker_barrier(self->worker, LIG_FOREVER);
    peer_true(status == LIG_E_CLOSED);
    return 0;
}

static int flush_on_and_on(peers_worker *self)
{
    int64_t keys[KEYS], ticket;
    float values[KEYS * 4] = {0};
    lig_status status = LIG_OK;
    for (int64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    peer_ok(lig_params_intent(self->worker, keys, KEYS, 0, LIG_PARAMS_FOREVER_CLOCK));
    while (status == LIG_OK) {
        status = lig_params_push(self->worker, keys, KEYS, values, KEYS * 4, &ticket);
        if (status == LIG_OK)
            status = lig_params_flush(self->worker, LIG_FOREVER);
        begun(self);
    }
    peer_true(status == LIG_E_CLOSED);
    return 0;
}

static int open_and_close(peers_worker *self)
{
    lig_status status = LIG_OK;
    while (status == LIG_OK) {
        begun(self);
        lig_params_worker_close(self->worker);
        self->worker = NULL;
        status = lig_params_worker_open(&self->worker, self->node, self->id);
    }
    peer_true(status == LIG_E_CLOSED);
    return 0;
}

typedef struct workers {
    peers *job;
    lig_params *node;
    int (*work)(peers_worker *self);
} workers;

static void *run_workers(void *context)
{
    workers *self = context;
    peer_true(peers_workers(self->job, self->node, self->work) == 0);
    return NULL;
}

static int shut_down_over(peers *job, lig_params *node, int (*work)(peers_worker *))
{
    workers all = {job, node, work};
    pthread_t thread;
    peer_true(pthread_create(&thread, NULL, run_workers, &all) == 0);
    while (atomic_load(&job->shared->numbers[job->rank]) != (1 << job->options.worker_count) - 1)
        sched_yield();
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    pthread_join(thread, NULL);
    return 0;
}

static int run_barrier(peers *job, lig_params *node)
{
    return shut_down_over(job, node, wait_in_barrier);
}

static int run_flushes(peers *job, lig_params *node)
{
    return shut_down_over(job, node, flush_on_and_on);
}

static int run_handles(peers *job, lig_params *node)
{
    return shut_down_over(job, node, open_and_close);
}

static void a_barrier_ends(void **state)
{
    (void)state;
    for (uint32_t nodes = 1; nodes <= 2; nodes++) {
        peers job = job_of(nodes, 2, run_barrier);
        peers_run(&job);
    }
}

static void a_flush_ends(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        peers job = job_of(2, 2, run_flushes);
        peers_run(&job);
    }
}

static void workers_may_go(void **state)
{
    (void)state;
    peers job = job_of(2, 2, run_handles);
    peers_run(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_ends),
        cmocka_unit_test(a_flush_ends),
        cmocka_unit_test(workers_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
