/* Sampling on several nodes: local samples are of the keys that are here, as they come and go; the
 * other schemes bring their keys here. */
#include "params/params_peers.h"

#include <math.h>

enum { NODES = 2, KEYS = 200, LENGTH = 4, DRAWS = 40000 };

typedef struct scene {
    uint32_t scheme, distribution;
} scene;

static double weight_of(uint32_t distribution, int64_t key)
{
    if (distribution == LIG_PARAMS_SAMPLE_UNIFORM)
        return 1;
    if (distribution == LIG_PARAMS_SAMPLE_LOG_UNIFORM)
        return log(((double)key + 2) / ((double)key + 1));
    return (double)(key % 5);
}

static void enable(lig_params *node, const scene *made)
{
    double weights[KEYS];
    for (int64_t key = 0; key < KEYS; key++)
        weights[key] = weight_of(LIG_PARAMS_SAMPLE_WEIGHTS, key);
    lig_params_sampling sampling = {.scheme = made->scheme,
                                    .distribution = made->distribution,
                                    .max = KEYS,
                                    .weights = weights,
                                    .with_replacement = 1,
                                    .pool_size = 30,
                                    .reuse = 2,
                                    .seed = 7};
    peer_ok(lig_params_enable_sampling(node, &sampling));
}

static int is_here(lig_params_worker *worker, int64_t key)
{
    int64_t values[LENGTH];
    int local;
    peer_ok(lig_params_pull_if_local(worker, &key, 1, values, LENGTH, &local));
    return local;
}

static void draw(lig_params_worker *worker, int64_t *keys, size_t count)
{
    int64_t *values = malloc(count * LENGTH * sizeof *values), sample, ticket;
    peer_ok(lig_params_prepare_sample(worker, count, 0, 0, &sample));
    peer_ok(lig_params_pull_sample(worker, sample, keys, count, values, &ticket));
    peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < LENGTH; j++)
            peer_true(values[i * LENGTH + j] == keys[i]);
    free(values);
}

/* Nothing moves at this time: what is drawn is of what is here, as often as it should be. */
static void check_draws(const scene *made, lig_params *node, lig_params_worker *worker,
                        size_t least)
{
    int64_t *keys = malloc(DRAWS * sizeof *keys);
    uint64_t counts[KEYS] = {0};
    double expected[KEYS], sum = 0;
    size_t here = 0;
    lig_params_stats before, after;
    for (int64_t key = 0; key < KEYS; key++) {
        int local = is_here(worker, key);
        expected[key] = local ? weight_of(made->distribution, key) : 0;
        sum += expected[key];
        here += (size_t)local;
    }
    peer_true(here >= least);
    for (int64_t key = 0; key < KEYS; key++)
        expected[key] *= DRAWS / sum;
    peer_ok(lig_params_stats_get(node, &before));
    for (size_t at = 0; at < DRAWS; at += 100)
        draw(worker, keys + at, 100);
    peer_ok(lig_params_stats_get(node, &after));
    peer_true(after.remote == before.remote && after.shared == before.shared);
    peer_true(after.samples == before.samples + DRAWS);
    for (size_t i = 0; i < DRAWS; i++)
        counts[keys[i]]++;
    double chi = 0, cells = 0;
    for (int64_t key = 0; key < KEYS; key++) {
        if (expected[key] == 0)
            peer_true(counts[key] == 0);
        else
            chi += pow((double)counts[key] - expected[key], 2) / expected[key];
        cells += expected[key] > 0;
    }
    peer_true(chi < cells + 4 * sqrt(2 * cells) + 8);
    free(keys);
}

static void set_rows(lig_params *node, lig_params_worker *worker)
{
    for (int64_t key = lig_params_rank(node); key < KEYS; key += NODES) {
        int64_t values[LENGTH] = {key, key, key, key}, ticket;
        peer_ok(lig_params_set(worker, &key, 1, values, LENGTH, &ticket));
    }
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
}

static void wait_for(lig_params_worker *worker, int64_t key, int local)
{
    while (is_here(worker, key) != local)
        peer_ok(lig_params_wait_sync(worker, PEERS_TIMEOUT_NS));
}

/* Node 1 keeps what it has; node 0 has its own half, then some of the others as well, and then not
 * any more. */
static int run_local(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = NULL;
    peer_ok(lig_params_worker_open(&worker, node, 0));
    enable(node, made);
    set_rows(node, worker);
    check_draws(made, node, worker, KEYS / 2);
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    int64_t kept[20], forever = LIG_PARAMS_FOREVER_CLOCK;
    for (int64_t i = 0; i < 20; i++)
        kept[i] = 1 + 4 * i;
    if (job->rank == 1)
        peer_ok(lig_params_intent(worker, kept, 20, 0, forever));
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    if (job->rank == 0) {
        peer_ok(lig_params_intent(worker, kept, 20, 0, 5));
        for (int i = 0; i < 20; i++)
            wait_for(worker, kept[i], 1);
        check_draws(made, node, worker, KEYS / 2 + 20);
        for (int i = 0; i < 6; i++)
            lig_params_advance_clock(worker);
        for (int i = 0; i < 20; i++)
            wait_for(worker, kept[i], 0);
    }
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    check_draws(made, node, worker, KEYS / 2);
    peer_ok(lig_params_worker_finalize(worker, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

/* What was prepared comes here before it is pulled. */
static int run_ahead(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = NULL;
    peer_ok(lig_params_worker_open(&worker, node, 0));
    enable(node, made);
    set_rows(node, worker);
    int64_t sample, keys[40], values[40 * LENGTH], ticket;
    peer_ok(lig_params_prepare_sample(worker, 40, 1, LIG_PARAMS_FOREVER_CLOCK, &sample));
    lig_params_advance_clock(worker);
    for (ticket = 0; ticket != LIG_PARAMS_LOCAL;) {
        int64_t again;
        peer_ok(lig_params_pull_sample(worker, sample, keys, 40, values, &ticket));
        peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
        for (int i = 0; i < 40; i++)
            peer_true(values[i * LENGTH] == keys[i]);
        peer_ok(lig_params_wait_sync(worker, PEERS_TIMEOUT_NS));
        peer_ok(lig_params_prepare_sample(worker, 40, 1, LIG_PARAMS_FOREVER_CLOCK, &again));
        sample = again;
    }
    peer_ok(lig_params_worker_finalize(worker, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

/* Keys of a pull that failed have not come: they can be drawn again. */
static int run_failing(peers *job, lig_params *node)
{
    lig_params_sampling sampling = {.scheme = LIG_PARAMS_SAMPLE_LOCAL, .max = KEYS, .seed = 7};
    lig_params_worker *worker = NULL;
    int64_t keys[KEYS], values[KEYS * LENGTH], sample, ticket;
    int found[KEYS] = {0};
    peer_ok(lig_params_worker_open(&worker, node, 0));
    peer_ok(lig_params_enable_sampling(node, &sampling));
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    if (job->rank == 1)
        _exit(0);
    while (lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS) != LIG_E_PEER)
        ;
    peer_ok(lig_params_prepare_sample(worker, KEYS, 0, 0, &sample));
    peer_true(lig_params_pull_sample(worker, sample, keys, KEYS, values, &ticket) == LIG_E_PEER);
    peer_ok(lig_params_pull_sample(worker, sample, keys, KEYS / NODES, values, &ticket));
    for (int i = 0; i < KEYS / NODES; i++)
        peer_true(keys[i] % NODES == 0 && found[keys[i]]++ == 0);
    lig_params_worker_close(worker);
    return 0;
}

static void run_scheme(uint32_t scheme, uint32_t distribution, const char *transport,
                       int (*run)(peers *job, lig_params *node))
{
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    scene made = {scheme, distribution};
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run, .context = &made};
    job.options.node_count = NODES;
    job.options.tables = &table;
    job.options.table_count = 1;
    job.options.dtype = LIG_INT64;
    job.options.transport = transport;
    peers_run(&job);
}

static void test_local(void **state)
{
    (void)state;
    for (uint32_t distribution = 0; distribution < 3; distribution++) {
        run_scheme(LIG_PARAMS_SAMPLE_LOCAL, distribution, "shm", run_local);
        run_scheme(LIG_PARAMS_SAMPLE_LOCAL, distribution, "tcp", run_local);
    }
}

static void test_failing(void **state)
{
    (void)state;
    run_scheme(LIG_PARAMS_SAMPLE_LOCAL, 0, "tcp", run_failing);
}

static void test_preloc(void **state)
{
    (void)state;
    run_scheme(LIG_PARAMS_PRELOC, 1, "tcp", run_ahead);
}

static void test_pool(void **state)
{
    (void)state;
    run_scheme(LIG_PARAMS_POOL, 0, "tcp", run_ahead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_preloc),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
