/* Exact sums while rows move and are copied as wildly as they can: several nodes, workers, all
 * techniques, over shared memory and tcp. */
#include "params/params_peers.h"

enum { SHARED = 150, NODES = 3, WORKERS = 2, OWN = NODES * WORKERS, LENGTH = 3 };
enum { KEYS = SHARED + OWN, BATCH = 12, LENGTH_MOST = 40 };

static int rounds = 1000; /* `params_storm_test soak`: many more */

static uint64_t next(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Everybody pushes to the first keys, and all together are summed up in shared memory. Of the last
 * keys each worker has one to itself, on which it must always find all that it has done. */
typedef struct storm {
    peers_worker *self;
    uint64_t seed;
    int64_t own_key, own_sum;
    int64_t open[8]; /* tickets of pushes */
    int hashed, uneven;
} storm;

/* Rows of five lengths, in slabs of their own; neighbours differ. */
static uint32_t length_of(const storm *self, int64_t number)
{
    static const uint32_t lengths[] = {1, 3, LENGTH_MOST, 2, 17};
    return self->uneven ? lengths[number % 5] : LENGTH;
}

/* Keys are numbered here; hashed ones are anything. */
static int64_t key_of(const storm *self, int64_t number)
{
    return self->hashed ? (number + 1) * 1000003 : number;
}

static void do_push(storm *self, int round)
{
    int64_t keys[BATCH], values[BATCH * LENGTH_MOST], *ticket = &self->open[round % 8];
    size_t count = 1 + next(&self->seed) % BATCH, at = 0;
    peer_ok(lig_params_wait(self->self->worker, *ticket, PEERS_TIMEOUT_NS));
    for (size_t i = 0; i < count; i++) {
        int64_t number = i == 0 ? self->own_key : (int64_t)(next(&self->seed) % SHARED);
        int64_t value = 1 + (int64_t)(next(&self->seed) % 100);
        keys[i] = key_of(self, number);
        for (uint32_t j = 0; j < length_of(self, number); j++)
            values[at++] = value;
        atomic_fetch_add(&self->self->job->shared->numbers[number], value);
    }
    self->own_sum += values[0];
    peer_ok(lig_params_push(self->self->worker, keys, count, values, at, ticket));
}

/* What was pushed before it is overwritten, and what is pushed later is not. */
static void do_set(storm *self)
{
    int64_t key = key_of(self, self->own_key), values[LENGTH_MOST], ticket;
    uint32_t length = length_of(self, self->own_key);
    self->own_sum = (int64_t)(next(&self->seed) % 1000);
    for (uint32_t j = 0; j < length; j++)
        values[j] = self->own_sum;
    atomic_store(&self->self->job->shared->numbers[self->own_key], self->own_sum);
    peer_ok(lig_params_set(self->self->worker, &key, 1, values, length, &ticket));
}

/* Every row is whole, and the own one has all of this worker's pushes, waited for or not. */
static void do_pull(storm *self)
{
    int64_t keys[BATCH], values[BATCH * LENGTH_MOST], ticket;
    uint32_t lengths[BATCH];
    size_t all = 0, at = 0;
    for (int i = 0; i < BATCH; i++) {
        int64_t number = i == 0 ? self->own_key : (int64_t)(next(&self->seed) % KEYS);
        keys[i] = key_of(self, number);
        all += lengths[i] = length_of(self, number);
    }
    peer_ok(lig_params_pull(self->self->worker, keys, BATCH, values, all, &ticket));
    peer_ok(lig_params_wait(self->self->worker, ticket, PEERS_TIMEOUT_NS));
    for (int i = 0; i < BATCH; at += lengths[i++])
        for (uint32_t j = 1; j < lengths[i]; j++)
            if (values[at] != values[at + j])
                peer_fail("key %lld is torn: %lld, %lld", (long long)keys[i], (long long)values[at],
                          (long long)values[at + j]);
    if (values[0] != self->own_sum)
        peer_fail("node %u worker %u: own key %lld has %lld, %lld were pushed",
                  self->self->job->rank, self->self->id, (long long)self->own_key,
                  (long long)values[0], (long long)self->own_sum);
}

static void do_intent(storm *self)
{
    int64_t keys[BATCH], now = lig_params_current_clock(self->self->worker);
    for (int i = 0; i < BATCH; i++)
        keys[i] = key_of(self, (int64_t)(next(&self->seed) % KEYS));
    int64_t start = now + (int64_t)(next(&self->seed) % 20);
    int64_t end = start + 1 + (int64_t)(next(&self->seed) % 10);
    peer_ok(lig_params_intent(self->self->worker, keys, BATCH, start, end));
}

static void do_sample(storm *self)
{
    int64_t keys[4], values[4 * LENGTH], sample, ticket;
    peer_ok(lig_params_prepare_sample(self->self->worker, 4, 0, 0, &sample));
    lig_status status =
        lig_params_pull_sample(self->self->worker, sample, keys, 4, values, &ticket);
    if (status == LIG_OK)
        peer_ok(lig_params_wait(self->self->worker, ticket, PEERS_TIMEOUT_NS));
    else
        peer_true(status == LIG_E_NOTFOUND);
    peer_ok(lig_params_finish_sample(self->self->worker, sample));
}

static void check_sums(const storm *self)
{
    for (int64_t number = 0; number < KEYS; number++) {
        int64_t values[LENGTH_MOST], ticket, key = key_of(self, number);
        int64_t sum = self->self->job->shared->numbers[number];
        uint32_t length = length_of(self, number);
        peer_ok(lig_params_pull(self->self->worker, &key, 1, values, length, &ticket));
        peer_ok(lig_params_wait(self->self->worker, ticket, PEERS_TIMEOUT_NS));
        for (uint32_t j = 0; j < length; j++)
            if (values[j] != sum)
                peer_fail("node %u: key %lld has %lld, %lld were pushed", self->self->job->rank,
                          (long long)key, (long long)values[j], (long long)sum);
    }
}

static int work(peers_worker *worker)
{
    uint32_t number = worker->job->rank * worker->job->options.worker_count + worker->id;
    storm self = {.self = worker, .seed = number + 1, .own_key = SHARED + number};
    self.hashed = (worker->job->options.flags & LIG_PARAMS_HASHED) != 0;
    self.uneven = worker->job->options.tables->lengths != NULL;
    for (int i = 0; i < 8; i++)
        self.open[i] = LIG_PARAMS_LOCAL;
    for (int round = 0; round < rounds; round++) {
        do_intent(&self);
        do_push(&self, round);
        if (round % 3 == 0)
            do_pull(&self);
        if (round % 7 == 0 && !self.hashed && !self.uneven)
            do_sample(&self);
        if (round % 11 == 0)
            do_set(&self);
        lig_params_advance_clock(worker->worker);
        if (round == rounds / 2)
            peer_ok(lig_params_wait_sync(worker->worker, PEERS_TIMEOUT_NS));
    }
    peer_ok(lig_params_wait_all(worker->worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_flush(worker->worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_worker_barrier(worker->worker, PEERS_TIMEOUT_NS));
    check_sums(&self);
    peer_ok(lig_params_worker_finalize(worker->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run(peers *job, lig_params *node)
{
    lig_params_sampling sampling = {
        .scheme = LIG_PARAMS_SAMPLE_LOCAL, .max = SHARED, .with_replacement = 1, .seed = 1};
    if (!(job->options.flags & LIG_PARAMS_HASHED) && job->options.tables->lengths == NULL)
        peer_ok(lig_params_enable_sampling(node, &sampling));
    int result = peers_workers(job, node, work);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

static void storm_on(const lig_params_table *table, uint32_t nodes, const char *transport,
                     uint32_t techniques, uint32_t flags)
{
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run};
    job.options.node_count = nodes;
    job.options.worker_count = WORKERS;
    job.options.tables = table;
    job.options.table_count = 1;
    job.options.dtype = LIG_INT64;
    job.options.techniques = techniques;
    job.options.flags = flags;
    job.options.transport = transport;
    peers_run(&job);
}

static void storm_over(const char *transport, uint32_t techniques, uint32_t flags)
{
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    storm_on(&table, NODES, transport, techniques, flags);
}

/* Rows of different lengths. */
static void uneven_storm(uint32_t techniques)
{
    const storm uneven = {.uneven = 1};
    uint32_t lengths[KEYS];
    lig_params_table table = {.key_count = KEYS, .lengths = lengths};
    for (int64_t i = 0; i < KEYS; i++)
        lengths[i] = length_of(&uneven, i);
    storm_on(&table, 2, "shm", techniques, 0);
    storm_on(&table, NODES, "tcp", techniques, 0);
}

static void test_uneven_all(void **state)
{
    (void)state;
    uneven_storm(LIG_PARAMS_ALL);
}

static void test_uneven_replication(void **state)
{
    (void)state;
    uneven_storm(LIG_PARAMS_REPLICATION_ONLY);
}

static void test_uneven_relocation(void **state)
{
    (void)state;
    uneven_storm(LIG_PARAMS_RELOCATION_ONLY);
}

static void test_shm_all(void **state)
{
    (void)state;
    storm_over("shm", LIG_PARAMS_ALL, 0);
}

static void test_shm_replication(void **state)
{
    (void)state;
    storm_over("shm", LIG_PARAMS_REPLICATION_ONLY, 0);
}

static void test_shm_relocation(void **state)
{
    (void)state;
    storm_over("shm", LIG_PARAMS_RELOCATION_ONLY, 0);
}

static void test_tcp_all(void **state)
{
    (void)state;
    storm_over("tcp", LIG_PARAMS_ALL, 0);
}

static void test_tcp_replication(void **state)
{
    (void)state;
    storm_over("tcp", LIG_PARAMS_REPLICATION_ONLY, 0);
}

static void test_tcp_relocation(void **state)
{
    (void)state;
    storm_over("tcp", LIG_PARAMS_RELOCATION_ONLY, 0);
}

static void test_shm_hashed(void **state)
{
    (void)state;
    storm_over("shm", LIG_PARAMS_ALL, LIG_PARAMS_HASHED);
}

static void test_tcp_hashed(void **state)
{
    (void)state;
    storm_over("tcp", LIG_PARAMS_ALL, LIG_PARAMS_HASHED);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "soak") == 0)
        rounds = 20000;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_all),           cmocka_unit_test(test_shm_replication),
        cmocka_unit_test(test_shm_relocation),    cmocka_unit_test(test_tcp_all),
        cmocka_unit_test(test_tcp_replication),   cmocka_unit_test(test_tcp_relocation),
        cmocka_unit_test(test_shm_hashed),        cmocka_unit_test(test_tcp_hashed),
        cmocka_unit_test(test_uneven_all),        cmocka_unit_test(test_uneven_replication),
        cmocka_unit_test(test_uneven_relocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
