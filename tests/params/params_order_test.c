/* One call that names a key several times, while rows come and go: its writes are done in the order
 * of its keys, and a test for local rows returns all or nothing. */
#include "params/params_peers.h"

#include <math.h>

enum { NODES = 2, WORKERS = 2, EACH = 12, LENGTH = 8, ROUNDS = 1500, BATCH = 48 };
enum { KEYS = NODES * WORKERS * EACH }; /* of each table; a worker writes to its own alone */

static const lig_params_optimizer adam = {
    .kind = LIG_PARAMS_ADAM, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .99};
static const lig_params_optimizer decay = {.kind = LIG_PARAMS_SGD, .lr = .5, .weight_decay = .25};

static lig_params_table tables[] = {{.name = "values", .key_count = KEYS, .length = LENGTH},
                                    {.name = "adam", .key_count = KEYS, .length = LENGTH},
                                    {.name = "decay", .key_count = KEYS, .length = LENGTH}};

typedef struct player {
    peers_worker *self;
    unsigned seed;
    lig_params *alone; /* the same is done there, where nothing moves */
    lig_params_worker *twin;
    int64_t first; /* of its keys in each table */
} player;

static uint32_t roll(player *self, uint32_t sides)
{
    return (uint32_t)rand_r(&self->seed) % sides;
}

/* Few different keys, so that they come again and again. */
static size_t draw(player *self, int table, int64_t *keys, double *values)
{
    size_t count = 2 + roll(self, BATCH - 1);
    for (size_t i = 0; i < count; i++) {
        keys[i] = table * KEYS + self->first + roll(self, EACH);
        for (size_t j = 0; j < LENGTH; j++)
            values[i * LENGTH + j] = (double)roll(self, 1000) / 8 - 60;
    }
    return count;
}

static void write_both(player *self, int table)
{
    int64_t keys[BATCH], ticket;
    double values[BATCH * LENGTH];
    size_t count = draw(self, table, keys, values);
    if (table == 0) {
        peer_ok(lig_params_set(self->self->worker, keys, count, values, count * LENGTH, &ticket));
        peer_ok(lig_params_set(self->twin, keys, count, values, count * LENGTH, &ticket));
    } else {
        peer_ok(lig_params_push(self->self->worker, keys, count, values, count * LENGTH, &ticket));
        peer_ok(lig_params_push(self->twin, keys, count, values, count * LENGTH, &ticket));
    }
}

static void compare(player *self)
{
    int64_t keys[EACH], ticket;
    double found[EACH * LENGTH], expected[EACH * LENGTH];
    for (int table = 0; table < 3; table++) {
        for (int i = 0; i < EACH; i++)
            keys[i] = table * KEYS + self->first + i;
        peer_ok(lig_params_pull(self->self->worker, keys, EACH, found, EACH * LENGTH, &ticket));
        peer_ok(lig_params_wait(self->self->worker, ticket, PEERS_TIMEOUT_NS));
        peer_ok(lig_params_pull(self->twin, keys, EACH, expected, EACH * LENGTH, &ticket));
        for (int i = 0; i < EACH * LENGTH; i++)
            if (found[i] != expected[i])
                peer_fail("table %d, key %lld: %.17g, and in order %.17g", table,
                          (long long)keys[i / LENGTH], found[i], expected[i]);
    }
}

/* Anybody's rows. Those of the last table do not commute and must not be copied to be exact: they
 * are left to the technique that only moves. */
static void want(player *self)
{
    int64_t keys[BATCH], now = lig_params_current_clock(self->self->worker);
    uint32_t few = self->self->job->options.techniques == LIG_PARAMS_RELOCATION_ONLY ? 3 : 2;
    for (int i = 0; i < BATCH; i++)
        keys[i] = roll(self, few * KEYS);
    peer_ok(lig_params_intent(self->self->worker, keys, BATCH, now + roll(self, 3),
                              now + 4 + roll(self, 4)));
}

/* Nothing is filled unless all rows are local. */
static void look(player *self)
{
    int64_t keys[BATCH];
    double values[BATCH * LENGTH];
    int local = 0;
    for (int i = 0; i < BATCH; i++)
        keys[i] = self->first + roll(self, EACH);
    for (int i = 0; i < BATCH * LENGTH; i++)
        values[i] = NAN;
    peer_ok(
        lig_params_pull_if_local(self->self->worker, keys, BATCH, values, BATCH * LENGTH, &local));
    for (int i = 0; i < BATCH * LENGTH; i++)
        if (local == (isnan(values[i]) != 0))
            peer_fail("local is %d, and value %d %g", local, i, values[i]);
}

static int work(peers_worker *worker)
{
    uint32_t number = worker->job->rank * WORKERS + worker->id;
    player self = {.self = worker, .seed = number + 1, .first = number * EACH};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = tables;
    options.table_count = 3;
    options.dtype = LIG_FLOAT64;
    peer_ok(lig_params_open(&self.alone, &options));
    peer_ok(lig_params_worker_open(&self.twin, self.alone, 0));
    for (int round = 0; round < ROUNDS; round++) {
        want(&self);
        write_both(&self, round % 3);
        look(&self);
        if (round % 3 == 2)
            compare(&self);
        lig_params_advance_clock(worker->worker);
    }
    lig_params_worker_close(self.twin);
    lig_params_close(self.alone);
    peer_ok(lig_params_worker_finalize(worker->worker, PEERS_TIMEOUT_NS));
    return 0;
}

static int run(peers *job, lig_params *node)
{
    int result = peers_workers(job, node, work);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

static void play(const char *transport, uint32_t techniques)
{
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run};
    tables[1].optimizer = adam;
    tables[2].optimizer = decay;
    job.options.node_count = NODES;
    job.options.worker_count = WORKERS;
    job.options.tables = tables;
    job.options.table_count = 3;
    job.options.dtype = LIG_FLOAT64;
    job.options.techniques = techniques;
    job.options.transport = transport;
    job.options.round_ns = 100000;
    peers_run(&job);
}

static void test_shm(void **state)
{
    (void)state;
    play("shm", LIG_PARAMS_ALL);
    play("shm", LIG_PARAMS_RELOCATION_ONLY);
}

static void test_tcp(void **state)
{
    (void)state;
    play("tcp", LIG_PARAMS_REPLICATION_ONLY);
    play("tcp", LIG_PARAMS_RELOCATION_ONLY);
}

/* --- a table beside them whose pushes are taken in any order --- */

enum { WIDE = 8192, TIMES = 40 };

static const lig_params_table mixed[] = {
    {.name = "sums", .key_count = 10, .length = WIDE},
    {.name = "adam",
     .key_count = 10,
     .length = 1,
     .optimizer = {.kind = LIG_PARAMS_ADAM, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .99}}};

/* One ticket, and so nothing is waited for before the call returns. */
static int push_sums(peers_worker *worker)
{
    static double values[TIMES * WIDE];
    int64_t keys[TIMES], before, after;

    for (int i = 0; i < TIMES; i++)
        keys[i] = 1;
    for (int i = 0; i < TIMES * WIDE; i++)
        values[i] = 1;
    peer_ok(lig_params_push(worker->worker, keys, 1, values, WIDE, &before));
    peer_ok(lig_params_push(worker->worker, keys, TIMES, values, TIMES * WIDE, &after));
    peer_true(after == before + 1);
    peer_ok(lig_params_pull(worker->worker, keys, 1, values, WIDE, &after));
    peer_ok(lig_params_wait(worker->worker, after, PEERS_TIMEOUT_NS));
    peer_true(values[0] == TIMES + 1 && values[WIDE - 1] == TIMES + 1);
    return 0;
}

static int run_mixed(peers *job, lig_params *node)
{
    if (job->rank == 0)
        peer_true(peers_workers(job, node, push_sums) == 0);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static void test_order_of_another_table(void **state)
{
    (void)state;
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run_mixed};
    job.options.node_count = NODES;
    job.options.worker_count = 1;
    job.options.dtype = LIG_FLOAT64;
    job.options.tables = mixed;
    job.options.table_count = 2;
    job.options.transport = "tcp";
    peers_run(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_order_of_another_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
