/* Batches that the threads of a node share, on several nodes, while rows move and are copied. All
 * that is pushed is added up in shared memory, too. */
#include "params/params_peers.h"

enum { NODES = 3, WORKERS = 2, SHARED = 6000, OWN = 2000, KEYS = SHARED + NODES * WORKERS * OWN };
enum { LENGTH = 32, COUNT = 6000, INTENTS = 600, OPEN = 4, ROUNDS = 8 };

/* Everybody pushes to the first keys; of the others each worker has some to itself, on which it
 * must always find exactly what it has pushed. Element j of a row is j + 1 times the first one. */
typedef struct player {
    peers_worker *self;
    uint64_t seed;
    int64_t first_own, open[OPEN]; /* open: tickets of pushes */
    int64_t mine[KEYS];            /* pushed by this worker */
    int64_t numbers[COUNT], keys[COUNT], places[COUNT];
    int64_t gradients[COUNT * LENGTH], rows[COUNT * LENGTH];
} player;

static int64_t draw(player *self, int64_t limit)
{
    self->seed = self->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int64_t)((self->seed >> 33) % (uint64_t)limit);
}

static int64_t key_of(const player *self, int64_t number)
{
    return self->self->job->options.flags & LIG_PARAMS_HASHED ? (number + 1) * 1000003 : number;
}

static int64_t gradient_of(int64_t place)
{
    return place % 97 + 1;
}

/* Some occur several times. */
static void draw_keys(player *self)
{
    for (size_t i = 0; i < COUNT; i++) {
        self->numbers[i] = draw(self, 2) ? self->first_own + draw(self, OWN) : draw(self, SHARED);
        self->keys[i] = key_of(self, self->numbers[i]);
        self->places[i] = draw(self, COUNT);
    }
}

static void push(player *self, int round)
{
    lig_params_gradients given = {.keys = self->keys,
                                  .count = COUNT,
                                  .places = round % 2 ? self->places : NULL,
                                  .values = self->gradients,
                                  .elements = COUNT * LENGTH};
    draw_keys(self);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t value = gradient_of(given.places ? given.places[i] : i);
        self->mine[self->numbers[i]] += value;
        atomic_fetch_add(&self->self->job->shared->numbers[self->numbers[i]], value);
    }
    int64_t *ticket = &self->open[round % OPEN];
    peer_ok(lig_params_wait(self->self->worker, *ticket, PEERS_TIMEOUT_NS));
    if (round % 6 == 4) /* without places */
        peer_ok(lig_params_push(self->self->worker, self->keys, COUNT, self->gradients,
                                COUNT * LENGTH, ticket));
    else
        peer_ok(lig_params_push_sums(self->self->worker, &given, ticket));
}

/* `exact`: nobody pushes. */
static void check_row(const player *self, size_t i, int exact)
{
    const int64_t *row = self->rows + i * LENGTH;
    int64_t number = self->numbers[i], least = self->mine[number];
    int64_t most = atomic_load(&self->self->job->shared->numbers[number]);
    if (row[0] < (exact ? most : least) || row[0] > most)
        peer_fail("node %u worker %u: key %lld at %zu has %lld, not %lld to %lld",
                  self->self->job->rank, self->self->id, (long long)self->keys[i], i,
                  (long long)row[0], (long long)least, (long long)most);
    for (size_t j = 1; j < LENGTH; j++)
        if (row[j] != row[0] * (int64_t)(j + 1))
            peer_fail("key %lld at %zu is torn: %lld, then %lld at %zu", (long long)self->keys[i],
                      i, (long long)row[0], (long long)row[j], j);
}

static void pull(player *self, int exact)
{
    int64_t ticket;
    memset(self->rows, 0xee, sizeof self->rows);
    peer_ok(lig_params_pull(self->self->worker, self->keys, COUNT, self->rows, COUNT * LENGTH,
                            &ticket));
    peer_ok(lig_params_wait(self->self->worker, ticket, PEERS_TIMEOUT_NS));
    for (size_t i = 0; i < COUNT; i++)
        check_row(self, i, exact);
}

/* Of all keys, so that those of other workers move as well. */
static void intend(player *self)
{
    int64_t keys[INTENTS], start = lig_params_current_clock(self->self->worker) + draw(self, 3);
    for (size_t i = 0; i < INTENTS; i++)
        keys[i] = key_of(self, draw(self, KEYS));
    peer_ok(lig_params_intent(self->self->worker, keys, INTENTS, start, start + 1 + draw(self, 4)));
}

static void check_all(player *self)
{
    for (int64_t first = 0; first < KEYS; first += COUNT) {
        for (int64_t i = 0; i < COUNT; i++) {
            self->numbers[i] = first + i;
            self->keys[i] = key_of(self, first + i);
        }
        pull(self, 1);
    }
}

static int work(peers_worker *worker)
{
    uint32_t number = worker->job->rank * WORKERS + worker->id;
    player *self = calloc(1, sizeof *self);
    peer_true(self != NULL && KEYS % COUNT == 0);
    self->self = worker;
    self->seed = number;
    self->first_own = SHARED + (int64_t)number * OWN;
    for (int i = 0; i < OPEN; i++)
        self->open[i] = LIG_PARAMS_LOCAL;
    for (int64_t i = 0; i < COUNT * LENGTH; i++)
        self->gradients[i] = gradient_of(i / LENGTH) * (i % LENGTH + 1);
    for (int round = 0; round < ROUNDS; round++) {
        intend(self);
        push(self, round);
        draw_keys(self);
        pull(self, 0);
        lig_params_advance_clock(worker->worker);
    }
    peer_ok(lig_params_wait_all(worker->worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_flush(worker->worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_worker_barrier(worker->worker, PEERS_TIMEOUT_NS));
    check_all(self);
    peer_ok(lig_params_worker_finalize(worker->worker, PEERS_TIMEOUT_NS));
    free(self);
    return 0;
}

/* Rows of all kinds were accessed. */
static int run(peers *job, lig_params *node)
{
    lig_params_stats stats;
    int result = peers_workers(job, node, work);
    peer_ok(lig_params_stats_get(node, &stats));
    peer_true(stats.local > 0 && stats.remote > 0);
    peer_true((stats.replica > 0) == (job->options.techniques != LIG_PARAMS_RELOCATION_ONLY));
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return result;
}

static void play(const char *transport, uint32_t techniques, uint32_t flags)
{
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    peers job = peers_of(NODES, &table, transport, run);
    job.options.worker_count = WORKERS;
    job.options.dtype = LIG_INT64;
    job.options.techniques = techniques;
    job.options.flags = flags;
    job.options.batch_threads = 4;
    peers_run(&job);
}

static void test_shm(void **unused)
{
    (void)unused;
    play("shm", LIG_PARAMS_ALL, 0);
}

static void test_tcp(void **unused)
{
    (void)unused;
    play("tcp", LIG_PARAMS_ALL, 0);
}

static void test_replication(void **unused)
{
    (void)unused;
    play("tcp", LIG_PARAMS_REPLICATION_ONLY, 0);
}

static void test_relocation(void **unused)
{
    (void)unused;
    play("tcp", LIG_PARAMS_RELOCATION_ONLY, 0);
}

static void test_hashed(void **unused)
{
    (void)unused;
    play("shm", LIG_PARAMS_ALL, LIG_PARAMS_HASHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),         cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_replication), cmocka_unit_test(test_relocation),
        cmocka_unit_test(test_hashed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
