/* Sampling on one node: all schemes over the public calls. */
#include "params/sampling/sampling.h"

#include "params/sampling/draw_testing.h"

#include <stdlib.h>

enum { KEYS = 400, LENGTH = 3, FIRST = 100, LAST = 300 };

static lig_params *node_open(void)
{
    lig_params *node = NULL;
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = &table;
    options.table_count = 1;
    assert_ok(lig_params_open(&node, &options));
    return node;
}

/* Each row contains its key. */
static lig_params_worker *worker_open(lig_params *node)
{
    lig_params_worker *worker = NULL;
    float values[LENGTH];
    int64_t ticket;
    assert_ok(lig_params_worker_open(&worker, node, 0));
    for (int64_t key = 0; key < KEYS; key++) {
        for (int i = 0; i < LENGTH; i++)
            values[i] = (float)(key * 10 + i);
        assert_ok(lig_params_set(worker, &key, 1, values, LENGTH, &ticket));
        assert_ok(lig_params_wait(worker, ticket, LIG_FOREVER));
    }
    return worker;
}

static void end(lig_params *node, lig_params_worker *worker)
{
    lig_params_worker_close(worker);
    lig_params_close(node);
}

static lig_params_sampling sampling_of(uint32_t scheme, uint32_t distribution, int again)
{
    return (lig_params_sampling){.scheme = scheme,
                                 .distribution = distribution,
                                 .min = FIRST,
                                 .max = LAST,
                                 .with_replacement = (uint32_t)again,
                                 .pool_size = 20,
                                 .reuse = 3,
                                 .seed = 5};
}

static void pull(lig_params_worker *worker, int64_t sample, size_t count, int64_t *keys)
{
    float *values = malloc(count * LENGTH * sizeof *values);
    int64_t ticket;
    assert_ok(lig_params_pull_sample(worker, sample, keys, count, values, &ticket));
    assert_ok(lig_params_wait(worker, ticket, LIG_FOREVER));
    for (size_t i = 0; i < count; i++) {
        assert_in_range(keys[i], FIRST, LAST - 1);
        for (size_t j = 0; j < LENGTH; j++)
            assert_true(values[i * LENGTH + j] == (float)(keys[i] * 10 + (int64_t)j));
    }
    free(values);
}

static void test_schemes(void **state)
{
    (void)state;
    double weights[LAST - FIRST];
    for (int i = 0; i < LAST - FIRST; i++)
        weights[i] = i % 2;
    for (uint32_t scheme = 0; scheme < 4; scheme++)
        for (uint32_t kind = 0; kind < 3; kind++)
            for (int again = 0; again < 2; again++) {
                lig_params *node = node_open();
                lig_params_worker *worker = worker_open(node);
                lig_params_sampling sampling = sampling_of(scheme, kind, again);
                int64_t keys[60], sample;
                int found[KEYS] = {0};
                sampling.weights = weights;
                assert_ok(lig_params_enable_sampling(node, &sampling));
                assert_ok(lig_params_prepare_sample(worker, 60, 0, 0, &sample));
                pull(worker, sample, 25, keys);
                pull(worker, sample, 35, keys + 25);
                for (int i = 0; i < 60; i++) {
                    assert_true(kind != 2 || (keys[i] - FIRST) % 2 == 1);
                    assert_true(found[keys[i]]++ == 0 || again);
                }
                end(node, worker);
            }
}

/* Over the whole range, with the expected frequencies. */
static void test_local_is_uniform(void **state)
{
    (void)state;
    enum { MANY = 200000 };
    lig_params *node = node_open();
    lig_params_worker *worker = worker_open(node);
    lig_params_sampling sampling = sampling_of(LIG_PARAMS_SAMPLE_LOCAL, 0, 1);
    int64_t *keys = malloc(MANY * sizeof *keys), sample;
    uint64_t counts[LAST - FIRST] = {0};
    double expected[LAST - FIRST];
    assert_ok(lig_params_enable_sampling(node, &sampling));
    assert_ok(lig_params_prepare_sample(worker, MANY, 0, 0, &sample));
    pull(worker, sample, MANY, keys);
    for (size_t i = 0; i < MANY; i++)
        counts[keys[i] - FIRST]++;
    for (size_t i = 0; i < LAST - FIRST; i++)
        expected[i] = (double)MANY / (LAST - FIRST);
    assert_close(counts, expected, LAST - FIRST);
    lig_params_stats stats;
    assert_ok(lig_params_stats_get(node, &stats));
    assert_int_equal(stats.samples, MANY);
    free(keys);
    end(node, worker);
}

static void test_life_of_a_sample(void **state)
{
    (void)state;
    lig_params *node = node_open();
    lig_params_worker *worker = worker_open(node);
    lig_params_sampling sampling = sampling_of(LIG_PARAMS_NAIVE, 0, 0);
    int64_t keys[8], one, two, ticket;
    float values[8 * LENGTH];
    assert_status(lig_params_prepare_sample(worker, 1, 0, 0, &one), LIG_E_INVALID);
    assert_says("not enabled");
    assert_ok(lig_params_enable_sampling(node, &sampling));
    assert_ok(lig_params_enable_sampling(node, &sampling));
    assert_status(lig_params_prepare_sample(worker, LAST - FIRST + 1, 0, 0, &one), LIG_E_LIMIT);
    assert_ok(lig_params_prepare_sample(worker, LAST - FIRST, 0, 0, &one));
    assert_status(lig_params_enable_sampling(node, &sampling), LIG_E_BUSY);
    assert_ok(lig_params_prepare_sample(worker, 4, 0, 0, &two));
    assert_true(one != two);
    pull(worker, two, 3, keys);
    assert_status(lig_params_pull_sample(worker, two, keys, 2, values, &ticket), LIG_E_LIMIT);
    assert_status(lig_params_pull_sample(worker, two, NULL, 1, values, &ticket), LIG_E_INVALID);
    pull(worker, two, 1, keys);
    assert_status(lig_params_pull_sample(worker, two, keys, 1, values, &ticket), LIG_E_NOTFOUND);
    assert_says("used up");
    assert_ok(lig_params_finish_sample(worker, two));
    assert_ok(lig_params_finish_sample(worker, one));
    assert_ok(lig_params_finish_sample(worker, one));
    assert_status(lig_params_pull_sample(worker, one, keys, 1, values, &ticket), LIG_E_NOTFOUND);
    assert_status(lig_params_finish_sample(worker, one + 1000000), LIG_E_NOTFOUND);
    assert_status(lig_params_finish_sample(worker, -5), LIG_E_NOTFOUND);
    assert_status(lig_params_finish_sample(worker, 0), LIG_E_NOTFOUND);
    for (int i = 0; i < 100000; i++) { /* finished samples free their slots */
        assert_ok(lig_params_prepare_sample(worker, 1, 0, 0, &one));
        assert_ok(lig_params_finish_sample(worker, one));
    }
    for (uint32_t i = 0; i < LIGI_SAMPLES_OPEN_MAX; i++)
        assert_ok(lig_params_prepare_sample(worker, 1, 0, 0, &one));
    assert_status(lig_params_prepare_sample(worker, 1, 0, 0, &one), LIG_E_LIMIT);
    end(node, worker);
}

static void test_refused(void **state)
{
    (void)state;
    lig_params *node = node_open();
    lig_params_sampling good = sampling_of(0, 0, 1), bad = good;
    bad.min = -1;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    bad = good;
    bad.max = KEYS + 1;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    bad = good;
    bad.max = bad.min;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    bad = good;
    bad.scheme = 4;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    bad = good;
    bad.distribution = 3;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    bad.distribution = LIG_PARAMS_SAMPLE_WEIGHTS;
    assert_status(lig_params_enable_sampling(node, &bad), LIG_E_INVALID);
    lig_params_close(node);

    uint32_t lengths[4] = {2, 2, 3, 2};
    lig_params_table table = {.key_count = 4, .lengths = lengths};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = &table;
    options.table_count = 1;
    assert_ok(lig_params_open(&node, &options));
    good.min = 0;
    good.max = 4;
    assert_status(lig_params_enable_sampling(node, &good), LIG_E_INVALID);
    assert_says("key 2 has 3");
    good.max = 2;
    assert_ok(lig_params_enable_sampling(node, &good));
    lig_params_close(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_local_is_uniform),
        cmocka_unit_test(test_life_of_a_sample),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
