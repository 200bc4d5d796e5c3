#include "params/sampling/local_keys.h"

#include "params/sampling/draw_testing.h"
#include "params/sampling/sample_pool.h"

#include <stdlib.h>

enum { RANGE = 60, DRAWS = 100000 };

/* --- the list --- */

static void test_random_moves(void **state)
{
    (void)state;
    ligi_local_keys list = {0};
    ligi_rng rng;
    int here[RANGE] = {0};
    uint32_t count = 0;
    ligi_rng_init(&rng, 11, 0, 0);
    assert_ok(ligi_local_keys_init(&list, RANGE));
    for (int step = 0; step < 20000; step++) {
        uint32_t item = (uint32_t)ligi_rng_below(&rng, RANGE);
        int add = ligi_rng_below(&rng, 2) == 0;
        count += add && !here[item];
        count -= !add && here[item];
        here[item] = add;
        (add ? ligi_local_keys_add : ligi_local_keys_remove)(&list, item);
        assert_int_equal(atomic_load(&list.count), count);
        int found[RANGE] = {0};
        for (uint32_t i = 0; i < count; i++)
            found[atomic_load(&list.items[i])]++;
        for (uint32_t i = 0; i < RANGE; i++) {
            assert_int_equal(found[i], here[i]);
            assert_int_equal(ligi_local_list_has(&list, i), here[i]);
        }
    }
    ligi_local_keys_fini(&list);
}

static void fill_list(ligi_local_keys *list, uint32_t every)
{
    assert_ok(ligi_local_keys_init(list, RANGE));
    for (uint32_t i = 0; i < RANGE; i++)
        ligi_local_keys_add(list, i);
    for (uint32_t i = 0; i < RANGE; i++)
        if (i % every != 1)
            ligi_local_keys_remove(list, i);
}

static void weigh(double *weights)
{
    for (uint32_t i = 0; i < RANGE; i++)
        weights[i] = i == 0 ? 1e6 : i % 5; /* nearly all the probability is remote */
}

/* Each distribution over the local keys; with weights most tries fail, so that both ways of drawing
 * are covered. */
static void test_draws(void **state)
{
    (void)state;
    double weights[RANGE], expected[RANGE];
    uint32_t *out = malloc(DRAWS * sizeof *out), got;
    weigh(weights);
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_local_keys list = {0};
        ligi_draw draw = {0};
        ligi_rng rng;
        uint64_t counts[RANGE] = {0};
        double sum = 0;
        fill_list(&list, 3);
        ligi_rng_init(&rng, 12, 0, kind);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        ligi_local_draw how = {&draw, &rng, NULL};
        for (uint32_t at = 0; at < DRAWS; at += 100) {
            assert_ok(ligi_local_keys_draw(&list, &how, 100, out + at, &got));
            assert_int_equal(got, 100);
        }
        for (uint32_t i = 0; i < DRAWS; i++)
            counts[out[i]]++;
        for (uint32_t i = 0; i < RANGE; i++)
            sum += i % 3 == 1 ? ligi_draw_weight(&draw, i) : 0;
        for (uint32_t i = 0; i < RANGE; i++)
            expected[i] = i % 3 == 1 ? ligi_draw_weight(&draw, i) / sum * DRAWS : 0;
        assert_close(counts, expected, RANGE);
        ligi_draw_fini(&draw);
        ligi_local_keys_fini(&list);
    }
    free(out);
}

static void test_each_once(void **state)
{
    (void)state;
    double weights[RANGE];
    uint32_t out[RANGE], got;
    weigh(weights);
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_local_keys list = {0};
        ligi_draw draw = {0};
        ligi_rng rng;
        ligi_seen seen = {0};
        int found[RANGE] = {0};
        fill_list(&list, 4);
        ligi_rng_init(&rng, 13, 0, kind);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        ligi_local_draw how = {&draw, &rng, &seen};
        uint32_t can = 0;
        for (uint32_t i = 1; i < RANGE; i += 4)
            can += ligi_draw_weight(&draw, i) > 0;
        assert_ok(ligi_local_keys_draw(&list, &how, 4, out, &got));
        assert_int_equal(got, 4);
        assert_ok(ligi_local_keys_draw(&list, &how, RANGE - 4, out + 4, &got));
        assert_int_equal(got, can - 4);
        for (uint32_t i = 0; i < can; i++) {
            assert_int_equal(out[i] % 4, 1);
            assert_int_equal(found[out[i]]++, 0);
        }
        ligi_seen_fini(&seen);
        ligi_draw_fini(&draw);
        ligi_local_keys_fini(&list);
    }
}

static void test_none_here(void **state)
{
    (void)state;
    ligi_local_keys list = {0};
    ligi_draw draw = {0};
    ligi_rng rng;
    uint32_t out[4], got = 9;
    ligi_rng_init(&rng, 14, 0, 0);
    assert_ok(ligi_local_keys_init(&list, RANGE));
    assert_ok(ligi_draw_init(&draw, 0, RANGE, NULL));
    ligi_local_draw how = {&draw, &rng, NULL};
    assert_ok(ligi_local_keys_draw(&list, &how, 4, out, &got));
    assert_int_equal(got, 0);
    ligi_draw_fini(&draw);
    ligi_local_keys_fini(&list);
}

/* --- the pool --- */

typedef struct log {
    uint32_t pools, total[RANGE];
} log_of_pools;

static lig_status note(void *context, const uint32_t *items, uint32_t count)
{
    log_of_pools *log = context;
    log->pools++;
    for (uint32_t i = 0; i < count; i++)
        log->total[items[i]]++;
    return LIG_OK;
}

/* Every item of a pool is returned `reuse` times before the next pool begins. */
static void test_reuse(void **state)
{
    (void)state;
    ligi_draw draw = {0};
    ligi_sample_pool pool = {0};
    ligi_rng rng;
    log_of_pools log = {0};
    uint32_t out[10 * 3 * 40], used[RANGE] = {0};
    ligi_rng_init(&rng, 15, 0, 0);
    assert_ok(ligi_draw_init(&draw, 1, RANGE, NULL));
    assert_ok(ligi_sample_pool_init(&pool, 10, 3));
    ligi_sample_pool_draw_options how = {&draw, &rng, NULL, note, &log};
    for (uint32_t at = 0; at < 1200; at += 24)
        assert_ok(ligi_sample_pool_draw(&pool, &how, 24, out + at));
    assert_int_equal(log.pools, 40);
    for (uint32_t i = 0; i < 1200; i++)
        used[out[i]]++;
    for (uint32_t i = 0; i < RANGE; i++)
        assert_int_equal(used[i], 3 * log.total[i]);
    ligi_sample_pool_fini(&pool);
    ligi_draw_fini(&draw);
}

static void test_pool_distribution(void **state)
{
    (void)state;
    ligi_draw draw = {0};
    ligi_sample_pool pool = {0};
    ligi_rng rng;
    uint64_t counts[RANGE] = {0};
    double expected[RANGE], sum = 0;
    uint32_t item;
    ligi_rng_init(&rng, 16, 0, 0);
    assert_ok(ligi_draw_init(&draw, 1, RANGE, NULL));
    assert_ok(ligi_sample_pool_init(&pool, 250, 1));
    ligi_sample_pool_draw_options how = {&draw, &rng, NULL, NULL, NULL};
    for (uint32_t i = 0; i < DRAWS; i++) {
        assert_ok(ligi_sample_pool_draw(&pool, &how, 1, &item));
        counts[item]++;
    }
    for (uint32_t i = 0; i < RANGE; i++)
        sum += ligi_draw_weight(&draw, i);
    for (uint32_t i = 0; i < RANGE; i++)
        expected[i] = ligi_draw_weight(&draw, i) / sum * DRAWS;
    assert_close(counts, expected, RANGE);
    ligi_sample_pool_fini(&pool);
    ligi_draw_fini(&draw);
}

/* A sample that is larger than the pool, or than the distinct items that the pools are likely to
 * have. */
static void test_pool_each_once(void **state)
{
    (void)state;
    double weights[RANGE];
    weigh(weights);
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_draw draw = {0};
        ligi_sample_pool pool = {0};
        ligi_rng rng;
        uint32_t out[RANGE];
        ligi_rng_init(&rng, 17, 0, 0);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        assert_ok(ligi_sample_pool_init(&pool, 7, 2));
        for (int sample = 0; sample < 50; sample++) {
            int found[RANGE] = {0};
            ligi_seen seen = {0};
            ligi_sample_pool_draw_options how = {&draw, &rng, &seen, NULL, NULL};
            assert_ok(ligi_sample_pool_draw(&pool, &how, draw.available, out));
            for (uint32_t i = 0; i < draw.available; i++)
                assert_int_equal(found[out[i]]++, 0);
            assert_status(ligi_sample_pool_draw(&pool, &how, 1, out), LIG_E_LIMIT);
            ligi_seen_fini(&seen);
        }
        ligi_sample_pool_fini(&pool);
        ligi_draw_fini(&draw);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_moves),   cmocka_unit_test(test_draws),
        cmocka_unit_test(test_each_once),      cmocka_unit_test(test_none_here),
        cmocka_unit_test(test_reuse),          cmocka_unit_test(test_pool_distribution),
        cmocka_unit_test(test_pool_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
