/* A single process without a network: all operations of a worker, and all errors. */
#include "base/test.h"

#include <ligament/params.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEYS = 100, LENGTH = 5, THREADS = 4 };

static const lig_params_table two_tables[] = {{.name = "users", .key_count = 60, .length = LENGTH},
                                              {.name = "items",
                                               .key_count = 40,
                                               .length = LENGTH,
                                               .init = {.kind = LIG_PARAMS_CONSTANT, .a = 2}}};

static lig_params_options options_of(const lig_params_table *tables, uint32_t count)
{
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = tables;
    options.table_count = count;
    return options;
}

static void open_one(lig_params **params, lig_params_worker **worker)
{
    lig_params_options options = options_of(two_tables, 2);
    assert_ok(lig_params_open(params, &options));
    assert_ok(lig_params_worker_open(worker, *params, 0));
}

static void test_rows_are_pulled_pushed_and_set(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_worker *worker;
    int64_t keys[] = {99, 3, 3, 60}, ticket = 7;
    float values[4 * LENGTH], found[4 * LENGTH];
    open_one(&params, &worker);
    for (size_t i = 0; i < 4 * LENGTH; i++)
        values[i] = (float)i;
    assert_ok(lig_params_push(worker, keys, 4, values, 4 * LENGTH, &ticket));
    assert_int_equal(ticket, LIG_PARAMS_LOCAL);
    assert_ok(lig_params_wait(worker, ticket, 0));
    assert_true(lig_params_done(worker, ticket));
    assert_ok(lig_params_pull(worker, keys, 4, found, 4 * LENGTH, &ticket));
    for (size_t i = 0; i < LENGTH; i++) {
        assert_true(found[i] == 2 + values[i]);
        assert_true(found[LENGTH + i] == values[LENGTH + i] + values[2 * LENGTH + i]);
        assert_true(found[2 * LENGTH + i] == found[LENGTH + i]);
        assert_true(found[3 * LENGTH + i] == 2 + values[3 * LENGTH + i]);
    }
    assert_ok(lig_params_set(worker, keys + 1, 1, values, LENGTH, &ticket));
    int local = 0;
    assert_ok(lig_params_pull_if_local(worker, keys + 1, 1, found, LENGTH, &local));
    assert_int_equal(local, 1);
    assert_memory_equal(found, values, LENGTH * sizeof *found);
    assert_ok(lig_params_pull(worker, NULL, 0, NULL, 0, &ticket));
    lig_params_worker_close(worker);
    lig_params_close(params);
}

static void test_what_cannot_be_is_refused_before_anything_changes(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_worker *worker, *other = NULL;
    int64_t bad[][2] = {{0, 100}, {0, -1}, {0, INT64_MIN}}, good[] = {0, 1}, ticket = 7;
    float values[2 * LENGTH] = {1, 1, 1}, found[2 * LENGTH];
    open_one(&params, &worker);
    for (size_t i = 0; i < 3; i++) {
        assert_true(lig_params_push(worker, bad[i], 2, values, 2 * LENGTH, &ticket) != LIG_OK);
        assert_true(lig_params_set(worker, bad[i], 2, values, 2 * LENGTH, &ticket) != LIG_OK);
        assert_true(lig_params_pull(worker, bad[i], 2, found, 2 * LENGTH, &ticket) != LIG_OK);
        assert_true(lig_params_intent(worker, bad[i], 2, 0, 1) != LIG_OK);
    }
    assert_status(lig_params_push(worker, good, 2, values, LENGTH, &ticket), LIG_E_INVALID);
    assert_says("10 elements");
    assert_status(lig_params_push(worker, NULL, 2, values, LENGTH, &ticket), LIG_E_INVALID);
    assert_status(lig_params_pull(worker, good, 2, NULL, 2 * LENGTH, &ticket), LIG_E_INVALID);
    assert_status(lig_params_wait(worker, 1, 0), LIG_E_INVALID);
    assert_status(lig_params_save(params, NULL, "model", 0), LIG_E_INVALID);
    assert_status(lig_params_load(params, "mem:", NULL, 0), LIG_E_INVALID);
    assert_status(lig_params_worker_open(&other, params, 0), LIG_E_EXISTS);
    assert_status(lig_params_worker_open(&other, params, 1), LIG_E_INVALID);
    assert_int_equal(ticket, 7);
    assert_ok(lig_params_pull(worker, good, 2, found, 2 * LENGTH, &ticket));
    for (size_t i = 0; i < 2 * LENGTH; i++)
        assert_true(found[i] == 0);
    lig_params_worker_close(worker);
    lig_params_close(params);
}

/* Enough rows for several blocks; every key has an odd number of gradients, in scattered places. */
static void test_gradients_of_equal_keys_are_summed(void **unused)
{
    (void)unused;
    enum { ROWS = 5000, WIDE = 128, GIVEN = 3 * ROWS };
    static const lig_params_optimizer adagrad = {LIG_PARAMS_ADAGRAD, 0, 1, 0, 0, 0, 0};
    lig_params_table table = {.key_count = ROWS, .length = WIDE, .optimizer = adagrad};
    lig_params_options options = options_of(&table, 1);
    lig_params *params;
    lig_params_worker *worker;
    int64_t *keys = calloc(GIVEN, sizeof *keys), *places = calloc(GIVEN, sizeof *places), ticket;
    float *values = calloc((size_t)GIVEN * WIDE, sizeof *values), row[WIDE];
    assert_true(keys && places && values);
    assert_ok(lig_params_open(&params, &options));
    assert_ok(lig_params_worker_open(&worker, params, 0));
    for (int64_t i = 0; i < GIVEN; i++) {
        keys[i] = i * 7919 % ROWS;
        places[i] = GIVEN - 1 - i;
        for (int e = 0; e < WIDE; e++)
            values[places[i] * WIDE + e] = i < ROWS ? 2 : 1; /* 4 in all */
    }
    lig_params_gradients given = {keys, GIVEN, places, values, (uint64_t)GIVEN * WIDE};
    assert_ok(lig_params_push_sums(worker, &given, &ticket));
    assert_int_equal(ticket, LIG_PARAMS_LOCAL);
    for (int64_t key = 0; key < ROWS; key++) {
        assert_ok(lig_params_pull(worker, &key, 1, row, WIDE, &ticket));
        for (int e = 0; e < WIDE; e++)
            assert_true(row[e] == -1); /* one step of 4 / sqrt(16); three would be longer */
    }
    places[9] = GIVEN;
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    places[9] = -1;
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    given.places = NULL;
    given.elements -= WIDE;
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    given.elements += WIDE;
    keys[9] = ROWS;
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    keys[9] = 0;
    given.values = NULL;
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    assert_ok(lig_params_pull(worker, keys + 9, 1, row, WIDE, &ticket));
    assert_true(row[0] == -1); /* nothing was pushed */
    assert_ok(lig_params_push_sums(worker, &(lig_params_gradients){0}, &ticket));
    lig_params_worker_close(worker);
    lig_params_close(params);
    free(keys);
    free(places);
    free(values);
}

static void test_sums_need_rows_of_one_length(void **unused)
{
    (void)unused;
    const lig_params_table tables[] = {{.name = "a", .key_count = 4, .length = 3},
                                       {.name = "b", .key_count = 4, .length = 5}};
    lig_params_options options = options_of(tables, 2);
    lig_params *params;
    lig_params_worker *worker;
    int64_t keys[] = {5, 6, 5, 1}, ticket;
    float values[20] = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 4}, row[5];
    assert_ok(lig_params_open(&params, &options));
    assert_ok(lig_params_worker_open(&worker, params, 0));
    lig_params_gradients given = {keys, 4, NULL, values, 20};
    assert_int_equal(lig_params_push_sums(worker, &given, &ticket), LIG_E_INVALID);
    given.count = 3;
    given.elements = 15;
    assert_ok(lig_params_push_sums(worker, &given, &ticket));
    assert_ok(lig_params_pull(worker, keys, 1, row, 5, &ticket));
    assert_true(row[0] == 5);
    lig_params_worker_close(worker);
    lig_params_close(params);
}

static void test_rows_are_read_and_written_with_their_state(void **unused)
{
    (void)unused;
    static const lig_params_optimizer adam = {LIG_PARAMS_ADAM, 0, 0.5, 1e-8, 0.5, 0.5, 0};
    const lig_params_table tables[] = {
        {.name = "a", .key_count = 20, .length = 3},
        {.name = "b", .key_count = 20, .length = 3, .optimizer = adam}};
    lig_params_options options = options_of(tables, 2);
    lig_params *params;
    lig_params_worker *worker;
    int64_t keys[] = {39, 2, 21}, other = 30, ticket;
    float given[] = {1, 2, 3}, values[9], state[14], row[3], before[3];
    assert_ok(lig_params_open(&params, &options));
    assert_ok(lig_params_worker_open(&worker, params, 0));
    assert_int_equal(lig_params_state_length(params, 39), 7);
    assert_int_equal(lig_params_state_length(params, 2), 0);
    assert_int_equal(lig_params_state_length(params, 40), 0);
    assert_ok(lig_params_push(worker, keys, 1, given, 3, &ticket));
    lig_params_rows rows = {keys, 3, values, 9, state, 14};
    assert_ok(lig_params_get_rows(worker, &rows));
    assert_ok(lig_params_pull(worker, keys, 1, before, 3, &ticket));
    assert_memory_equal(values, before, sizeof before);
    assert_true(state[0] == 0.5f && state[5] == 4.5f && state[6] == 1 && state[13] == 0);
    /* The same row under another key takes the same next step. */
    rows = (lig_params_rows){&other, 1, values, 3, state, 7};
    assert_ok(lig_params_set_rows(worker, &rows));
    assert_ok(lig_params_push(worker, keys, 1, given, 3, &ticket));
    assert_ok(lig_params_push(worker, &other, 1, given, 3, &ticket));
    assert_ok(lig_params_pull(worker, keys, 1, before, 3, &ticket));
    assert_ok(lig_params_pull(worker, &other, 1, row, 3, &ticket));
    assert_memory_equal(row, before, sizeof row);
    rows.state_elements = 6;
    assert_int_equal(lig_params_set_rows(worker, &rows), LIG_E_INVALID);
    rows = (lig_params_rows){&other, 1, NULL, 3, state, 7};
    assert_int_equal(lig_params_get_rows(worker, &rows), LIG_E_INVALID);
    assert_ok(lig_params_get_rows(worker, &(lig_params_rows){0}));
    lig_params_worker_close(worker);
    lig_params_close(params);
}

static void test_options_are_looked_at(void **unused)
{
    (void)unused;
    lig_params *params = NULL;
    lig_params_options options = options_of(two_tables, 2);
    options.worker_count = 0;
    assert_status(lig_params_open(&params, &options), LIG_E_INVALID);
    options = options_of(two_tables, 0);
    assert_status(lig_params_open(&params, &options), LIG_E_INVALID);
    options = options_of(two_tables, 2);
    options.node_count = 2;
    assert_status(lig_params_open(&params, &options), LIG_E_INVALID);
    assert_says("host:port");
    options = options_of(two_tables, 2);
    options.rank = 1;
    assert_status(lig_params_open(&params, &options), LIG_E_INVALID);
    options = options_of(two_tables, 2);
    options.dtype = LIG_FLOAT16;
    assert_true(lig_params_open(&params, &options) != LIG_OK);
    assert_null(params);
}

static void test_tables_have_names_lengths_and_rates(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_table table = {.name = "users",
                              .key_count = 9,
                              .length = 2,
                              .optimizer = {.kind = LIG_PARAMS_SGD, .lr = 0.5}};
    lig_params_options options = options_of(&table, 1);
    lig_params_worker *worker;
    int64_t key = 7, ticket;
    double lr = 0;
    float gradient[2] = {1, 2}, row[2];
    uint64_t elements;
    assert_ok(lig_params_open(&params, &options));
    assert_int_equal(lig_params_rank(params), 0);
    assert_int_equal(lig_params_node_count(params), 1);
    assert_int_equal(lig_params_key_count(params), 9);
    assert_int_equal(lig_params_length(params, 8), 2);
    assert_int_equal(lig_params_length(params, 9), 0);
    assert_ok(lig_params_offset(params, "users", &key));
    assert_int_equal(key, 0);
    assert_status(lig_params_offset(params, "nobody", &key), LIG_E_NOTFOUND);
    assert_says("users");
    assert_ok(lig_params_lengths(params, &key, 1, &elements));
    assert_int_equal(elements, 2);
    assert_ok(lig_params_worker_open(&worker, params, 0));
    assert_ok(lig_params_push(worker, &key, 1, gradient, 2, &ticket));
    assert_ok(lig_params_set_lr(params, NULL, 0.25));
    assert_ok(lig_params_get_lr(params, "users", &lr));
    assert_true(lr == 0.25);
    assert_ok(lig_params_push(worker, &key, 1, gradient, 2, &ticket));
    assert_ok(lig_params_pull(worker, &key, 1, row, 2, &ticket));
    assert_true(row[0] == -0.75f && row[1] == -1.5f);
    lig_params_worker_close(worker);
    lig_params_close(params);
}

typedef struct runner {
    lig_params *params;
    uint32_t id;
} runner;

static void *run(void *context)
{
    runner *self = context;
    lig_params_worker *worker;
    float ones[8 * LENGTH];
    int64_t keys[8], ticket;
    for (size_t i = 0; i < 8 * LENGTH; i++)
        ones[i] = 1;
    if (lig_params_worker_open(&worker, self->params, self->id) != LIG_OK)
        return "open";
    if (lig_params_begin_setup(worker, LIG_FOREVER) != LIG_OK ||
        lig_params_end_setup(worker, LIG_FOREVER) != LIG_OK)
        return "setup";
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < 8; i++)
            keys[i] = (int64_t)((size_t)round * 7 + i * 3) % KEYS;
        if (lig_params_push(worker, keys, 8, ones, 8 * LENGTH, &ticket) != LIG_OK)
            return "push";
        if (lig_params_advance_clock(worker) != round + 1)
            return "clock";
    }
    if (lig_params_worker_barrier(worker, LIG_FOREVER) != LIG_OK)
        return "barrier";
    float all = 0, row[LENGTH];
    for (int64_t key = 0; key < KEYS; key++) {
        if (lig_params_pull(worker, &key, 1, row, LENGTH, &ticket) != LIG_OK)
            return "pull";
        all += row[0] - (key >= 60 ? 2 : 0);
    }
    if (all != (float)THREADS * 500 * 8)
        return "sum";
    if (lig_params_worker_finalize(worker, LIG_FOREVER) != LIG_OK ||
        lig_params_worker_finalize(worker, LIG_FOREVER) != LIG_OK)
        return "finalize";
    lig_params_worker_close(worker);
    return NULL;
}

static void test_threads_are_workers(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_options options = options_of(two_tables, 2);
    pthread_t threads[THREADS];
    runner runners[THREADS];
    lig_params_stats stats;
    options.worker_count = THREADS;
    assert_ok(lig_params_open(&params, &options));
    for (uint32_t i = 0; i < THREADS; i++) {
        runners[i] = (runner){params, i};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed)
            fail_msg("worker %u: %s", i, (const char *)failed);
    }
    assert_ok(lig_params_stats_get(params, &stats));
    assert_int_equal(stats.pushes, THREADS * 500 * 8);
    assert_int_equal(stats.pulls, THREADS * KEYS);
    assert_int_equal(stats.local, stats.pushes + stats.pulls);
    assert_int_equal(stats.remote, 0);
    assert_int_equal(stats.rows_owned, KEYS);
    assert_ok(lig_params_stats_reset(params));
    assert_ok(lig_params_stats_get(params, &stats));
    assert_int_equal(stats.pushes, 0);
    assert_int_equal(stats.rows_owned, KEYS);
    assert_ok(lig_params_barrier(params, 0));
    assert_ok(lig_params_shutdown(params, 0));
    assert_status(lig_params_barrier(params, 0), LIG_E_CLOSED);
    lig_params_close(params);
}

static void test_a_barrier_without_the_others_ends(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_worker *worker;
    lig_params_options options = options_of(two_tables, 2);
    options.worker_count = 2;
    assert_ok(lig_params_open(&params, &options));
    assert_ok(lig_params_worker_open(&worker, params, 1));
    assert_status(lig_params_worker_barrier(worker, 1000000), LIG_E_TIMEOUT);
    assert_says("1 of the 2 workers");
    lig_params_worker_close(worker);
    lig_params_close(params);
}

static int in_child(lig_params *params, lig_params_worker *worker)
{
    int64_t key = 0, ticket;
    float row[LENGTH];
    if (lig_params_pull(worker, &key, 1, row, LENGTH, &ticket) != LIG_E_CLOSED ||
        lig_params_barrier(params, 0) != LIG_E_CLOSED ||
        lig_params_worker_barrier(worker, 0) != LIG_E_CLOSED ||
        lig_params_shutdown(params, 0) != LIG_E_CLOSED || lig_params_advance_clock(worker) != -1 ||
        lig_params_current_clock(worker) != -1)
        return 1;
    lig_params_worker_close(worker);
    lig_params_close(params);
    return 0;
}

static void test_a_forked_child_has_nothing(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_worker *worker;
    open_one(&params, &worker);
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(params, worker));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    lig_params_worker_close(worker);
    lig_params_close(params);
}

static uint64_t rows_owned(lig_params *params)
{
    lig_params_stats stats;
    assert_ok(lig_params_stats_get(params, &stats));
    return stats.rows_owned;
}

/* Hashed keys exist once they were accessed; a refused call creates none. */
static void test_a_refused_call_brings_no_keys(void **unused)
{
    (void)unused;
    lig_params *params;
    lig_params_worker *worker;
    lig_params_table table = {.key_count = 3, .length = LENGTH};
    lig_params_options options = options_of(&table, 1);
    int64_t keys[] = {900, 700, 900, 800, 600}, ticket;
    float values[5 * LENGTH] = {0};
    options.flags = LIG_PARAMS_HASHED;
    assert_ok(lig_params_open(&params, &options));
    assert_ok(lig_params_worker_open(&worker, params, 0));
    assert_status(lig_params_push(worker, keys, 5, values, 4 * LENGTH, &ticket), LIG_E_INVALID);
    assert_status(lig_params_push(worker, keys, 5, values, 5 * LENGTH, &ticket), LIG_E_LIMIT);
    assert_status(lig_params_pull(worker, keys, 5, values, 5 * LENGTH, &ticket), LIG_E_LIMIT);
    assert_int_equal(rows_owned(params), 0);
    assert_ok(lig_params_push(worker, keys, 4, values, 4 * LENGTH, &ticket));
    assert_int_equal(rows_owned(params), 3);
    assert_status(lig_params_set(worker, keys + 4, 1, values, LENGTH, &ticket), LIG_E_LIMIT);
    assert_says("key_count is 3, and 3 keys are in use");
    lig_params_worker_close(worker);
    lig_params_close(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_pulled_pushed_and_set),
        cmocka_unit_test(test_what_cannot_be_is_refused_before_anything_changes),
        cmocka_unit_test(test_gradients_of_equal_keys_are_summed),
        cmocka_unit_test(test_sums_need_rows_of_one_length),
        cmocka_unit_test(test_rows_are_read_and_written_with_their_state),
        cmocka_unit_test(test_options_are_looked_at),
        cmocka_unit_test(test_tables_have_names_lengths_and_rates),
        cmocka_unit_test(test_threads_are_workers),
        cmocka_unit_test(test_a_barrier_without_the_others_ends),
        cmocka_unit_test(test_a_forked_child_has_nothing),
        cmocka_unit_test(test_a_refused_call_brings_no_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
