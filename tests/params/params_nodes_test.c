/* Several nodes: as threads over inproc, as processes over shm and tcp. */
#include "base/test.h"
#include "params/params_scene.h"

enum { KEYS = 300, LENGTH = 7, ROUNDS = 50, BATCH = 40 };

static const lig_params_table sums[] = {{.name = "sums", .key_count = KEYS, .length = LENGTH},
                                        {.name = "steps",
                                         .key_count = 20,
                                         .length = 3,
                                         .optimizer = {.kind = LIG_PARAMS_SGD, .lr = 0.5},
                                         .init = {.kind = LIG_PARAMS_CONSTANT, .a = 8}}};

/* Every node pushes ones everywhere, waits now and then; the sums are exact. */
static int play_sums(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    float ones[BATCH * LENGTH], row[LENGTH];
    int64_t keys[BATCH], ticket, tickets[4] = {-1, -1, -1, -1};
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    unsigned seed = self->options.rank + 1;
    for (size_t i = 0; i < BATCH * LENGTH; i++)
        ones[i] = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BATCH; i++)
            keys[i] = rand_r(&seed) % KEYS;
        PLAY_OK(lig_params_wait(worker, tickets[round % 4], SCENE_MINUTE));
        PLAY_OK(lig_params_push(worker, keys, BATCH, ones, BATCH * LENGTH, &tickets[round % 4]));
    }
    PLAY_OK(lig_params_wait_all(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    double sum = 0;
    for (int64_t key = 0; key < KEYS; key++) {
        PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        for (size_t i = 1; i < LENGTH; i++)
            PLAY(row[i] == row[0]);
        sum += row[0];
    }
    PLAY(sum == (double)ROUNDS * BATCH * self->options.node_count);
    return scene_close_both(self, params, worker);
}

/* set, push, pull without waiting, of one key: each sees what came before. And the learning rate is
 * that of the node that pushes. */
static int play_order(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    float row[LENGTH], ones[LENGTH], big[LENGTH], step[3] = {1, 1, 1}, seen[3];
    int64_t ticket, key, next;
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    uint32_t rank = lig_params_rank(params), count = self->options.node_count;
    for (size_t i = 0; i < LENGTH; i++) {
        ones[i] = 1;
        big[i] = 100;
    }
    for (int64_t i = 0; i < 10; i++) { /* keys of this worker alone, homed anywhere */
        key = i * count + rank;
        PLAY_OK(lig_params_set(worker, &key, 1, big, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, ones, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, ones, LENGTH, &ticket));
        PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, ones, LENGTH, &next));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        PLAY(row[0] == 102 && row[LENGTH - 1] == 102);
    }
    key = KEYS + (rank + 1) % count; /* homed elsewhere, whatever the rank */
    PLAY_OK(lig_params_set_lr(params, "steps", 1 + rank));
    PLAY_OK(lig_params_push(worker, &key, 1, step, 3, &ticket));
    PLAY_OK(lig_params_pull(worker, &key, 1, seen, 3, &ticket));
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY(seen[0] == 8 - (float)(1 + rank));
    return scene_close_both(self, params, worker);
}

/* One call that is larger than any message, of keys in all places, some of them twice. */
static int play_large(scene_node *self)
{
    enum { MANY = 700000 };
    lig_params *params;
    lig_params_worker *worker;
    int64_t ticket, *keys = malloc(MANY * sizeof *keys);
    float *values = malloc((size_t)MANY * LENGTH * sizeof *values);
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (size_t i = 0; i < MANY; i++)
        keys[i] = (int64_t)(i * 7 % KEYS);
    for (size_t i = 0; i < (size_t)MANY * LENGTH; i++)
        values[i] = 1;
    PLAY_OK(lig_params_push(worker, keys, MANY, values, (uint64_t)MANY * LENGTH, &ticket));
    memset(values, 0, (size_t)MANY * LENGTH * sizeof *values); /* it is the caller's again */
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_pull(worker, keys, MANY, values, (uint64_t)MANY * LENGTH, &ticket));
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    double sum = 0;
    for (size_t i = 0; i < KEYS; i++)
        sum += values[i * LENGTH + 3];
    PLAY(sum == (double)MANY * self->options.node_count);
    free(keys);
    free(values);
    return scene_close_both(self, params, worker);
}

static int play_stats(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    lig_params_stats stats;
    float rows[KEYS * LENGTH];
    int64_t keys[KEYS], ticket;
    int local = 1, line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    PLAY_OK(lig_params_pull(worker, keys, KEYS, rows, KEYS * LENGTH, &ticket));
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY_OK(lig_params_push(worker, keys, KEYS, rows, KEYS * LENGTH, &ticket));
    PLAY(ticket != LIG_PARAMS_LOCAL);
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY(lig_params_done(worker, ticket));
    PLAY_OK(lig_params_pull_if_local(worker, keys, KEYS, rows, KEYS * LENGTH, &local));
    PLAY(local == 0);
    PLAY_OK(lig_params_stats_get(params, &stats));
    uint64_t own = KEYS / self->options.node_count;
    PLAY(stats.local == 2 * own && stats.pulls == KEYS && stats.pushes == KEYS);
    PLAY(stats.shared + stats.remote == 2 * (KEYS - own));
    PLAY((stats.shared > 0) == (strcmp(self->options.transport, "shm") == 0));
    PLAY(stats.bytes_sent > 0);
    return scene_close_both(self, params, worker);
}

/* New keys from every node. */
static int play_hashed(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    float ones[LENGTH] = {1, 1, 1, 1, 1, 1, 1}, row[LENGTH];
    int64_t ticket, key;
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int64_t i = 0; i < 100; i++) {
        key = i * INT64_C(987654321987) + 5;
        PLAY_OK(lig_params_push(worker, &key, 1, ones, LENGTH, &ticket));
    }
    PLAY_OK(lig_params_wait_all(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    for (int64_t i = 0; i < 100; i++) {
        key = i * INT64_C(987654321987) + 5;
        PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        PLAY(row[0] == (float)self->options.node_count);
    }
    return scene_close_both(self, params, worker);
}

static int play_one_barrier(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    PLAY_OK(lig_params_open(&params, &self->options));
    if (self->options.role == LIG_PARAMS_SCHEDULER) {
        PLAY(lig_params_worker_open(&worker, params, 0) == LIG_E_INVALID);
        PLAY(lig_params_barrier(params, 0) == LIG_E_INVALID);
        PLAY_OK(lig_params_shutdown(params, SCENE_MINUTE));
        lig_params_close(params);
        return 0;
    }
    PLAY_OK(lig_params_barrier(params, SCENE_MINUTE));
    PLAY(lig_params_rank(params) < self->options.node_count);
    PLAY_OK(lig_params_worker_open(&worker, params, 0));
    return scene_close_both(self, params, worker);
}

/* Ranks are given out by the rendezvous, which a scheduler holds. */
static void test_a_scheduler_and_ranks_given_out(void **unused)
{
    (void)unused;
    scene now;
    scene_init(&now, 4, "tcp", sums, 2);
    for (uint32_t i = 0; i < 4; i++) {
        now.nodes[i].options.node_count = 3;
        now.nodes[i].options.rank = UINT32_MAX;
        now.nodes[i].options.flags = LIG_PARAMS_HAS_SCHEDULER;
    }
    now.nodes[3].options.role = LIG_PARAMS_SCHEDULER;
    assert_int_equal(scene_processes(&now, play_one_barrier), 0);
    scene_init(&now, 2, "inproc", sums, 2); /* one node, and one that watches over it */
    for (uint32_t i = 0; i < 2; i++) {
        now.nodes[i].options.node_count = 1;
        now.nodes[i].options.rank = UINT32_MAX;
        now.nodes[i].options.flags = LIG_PARAMS_HAS_SCHEDULER;
    }
    now.nodes[1].options.role = LIG_PARAMS_SCHEDULER;
    assert_int_equal(scene_threads(&now, play_one_barrier), 0);
}

/* TLS between nodes that have the secret; who has another is not let in. */
static void test_nodes_with_a_secret(void **unused)
{
    (void)unused;
    scene now;
    scene_init(&now, 2, "tcp", sums, 2);
    for (uint32_t i = 0; i < 2; i++) {
        now.nodes[i].options.secret = "thirty-two bytes, and a few more";
        now.nodes[i].options.secret_bytes = 32;
    }
    assert_int_equal(scene_processes(&now, play_sums), 0);
}

typedef struct gathered {
    pthread_barrier_t barrier;
    uint8_t all[SCENE_NODES_MAX][4096];
} gathered;

typedef struct seat {
    gathered *with;
    uint32_t rank;
} seat;

static lig_status exchange(void *context, const void *mine, size_t bytes, void *all, size_t count)
{
    seat *self = context;
    if (bytes > sizeof self->with->all[0])
        return LIG_E_LIMIT;
    memcpy(self->with->all[self->rank], mine, bytes);
    pthread_barrier_wait(&self->with->barrier);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)all + i * bytes, self->with->all[i], bytes);
    return LIG_OK;
}

static void test_nodes_meet_by_an_exchange(void **unused)
{
    (void)unused;
    static gathered with;
    seat seats[3];
    scene now;
    scene_init(&now, 3, "inproc", sums, 2);
    pthread_barrier_init(&with.barrier, NULL, 3);
    for (uint32_t i = 0; i < 3; i++) {
        seats[i] = (seat){&with, i};
        now.nodes[i].options.address = NULL;
        now.nodes[i].options.exchange = exchange;
        now.nodes[i].options.exchange_context = &seats[i];
    }
    assert_int_equal(scene_threads(&now, play_one_barrier), 0);
    pthread_barrier_destroy(&with.barrier);
}

static const struct leg {
    const char *transport;
    int threads;
    uint32_t count;
} legs[] = {{"inproc", 1, 3}, {"shm", 0, 2}, {"shm", 0, 4}, {"tcp", 0, 3}};

static void run_all(scene_play play, uint32_t flags)
{
    for (size_t i = 0; i < sizeof legs / sizeof *legs; i++) {
        scene now;
        scene_init(&now, legs[i].count, legs[i].transport, sums, 2);
        for (uint32_t n = 0; n < now.count; n++)
            now.nodes[n].options.flags = flags;
        int failed = legs[i].threads ? scene_threads(&now, play) : scene_processes(&now, play);
        if (failed)
            fail_msg("%s with %u nodes: %d", legs[i].transport, legs[i].count, failed);
    }
}

static void test_sums_are_exact(void **unused)
{
    (void)unused;
    run_all(play_sums, 0);
}

static void test_what_one_worker_does_is_in_order(void **unused)
{
    (void)unused;
    run_all(play_order, 0);
}

static void test_one_call_may_be_larger_than_a_letter(void **unused)
{
    (void)unused;
    run_all(play_large, 0);
}

static void test_figures(void **unused)
{
    (void)unused;
    run_all(play_stats, 0);
}

static void test_hashed_keys(void **unused)
{
    (void)unused;
    run_all(play_hashed, LIG_PARAMS_HASHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_what_one_worker_does_is_in_order),
        cmocka_unit_test(test_one_call_may_be_larger_than_a_letter),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_hashed_keys),
        cmocka_unit_test(test_a_scheduler_and_ranks_given_out),
        cmocka_unit_test(test_nodes_with_a_secret),
        cmocka_unit_test(test_nodes_meet_by_an_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
