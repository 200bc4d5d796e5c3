#include "params/sampling/draw.h"

#include "params/sampling/draw_testing.h"

#include <stdlib.h>

enum { RANGE = 50, DRAWS = 200000 };

static void test_streams(void **state)
{
    (void)state;
    ligi_rng a, b, c, d;
    ligi_rng_init(&a, 7, 0, 1);
    ligi_rng_init(&b, 7, 0, 1);
    ligi_rng_init(&c, 7, 1, 0);
    ligi_rng_init(&d, 8, 0, 1);
    for (int i = 0; i < 100; i++) {
        uint64_t x = ligi_rng_next(&a);
        assert_true(x == ligi_rng_next(&b));
        assert_true(x != ligi_rng_next(&c));
        assert_true(x != ligi_rng_next(&d));
    }
}

/* Of two thirds of 2^64, every other number would come twice as often without a second try: the
 * odd ones of the lower half and the even ones of the upper. */
static void test_below(void **state)
{
    (void)state;
    ligi_rng rng;
    uint64_t counts[4] = {0}, most = UINT64_MAX / 3 * 2;
    double quarter = DRAWS / 4.0, expected[4] = {quarter, quarter, quarter, quarter};
    ligi_rng_init(&rng, 1, 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t drawn = ligi_rng_below(&rng, most);
        counts[drawn % 2 + 2 * (drawn >= most / 2)]++;
    }
    assert_close(counts, expected, 4);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ligi_rng_below(&rng, 1), 0);
}

static void weigh(double *weights)
{
    for (uint32_t i = 0; i < RANGE; i++)
        weights[i] = i % 7 == 3 ? 0 : 1 + (i * i) % 13 * 1e300;
}

static void expect(const ligi_draw *draw, double draws, double *expected)
{
    double sum = 0;
    for (uint32_t i = 0; i < draw->count; i++)
        sum += ligi_draw_weight(draw, i) / draw->count;
    for (uint32_t i = 0; i < draw->count; i++)
        expected[i] = ligi_draw_weight(draw, i) / draw->count / sum * draws;
}

static void test_distributions(void **state)
{
    (void)state;
    double weights[RANGE], expected[RANGE];
    weigh(weights);
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_draw draw = {0};
        ligi_rng rng;
        uint64_t counts[RANGE] = {0};
        ligi_rng_init(&rng, 3, 0, kind);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        for (int i = 0; i < DRAWS; i++)
            counts[ligi_draw_one(&draw, &rng)]++;
        expect(&draw, DRAWS, expected);
        assert_close(counts, expected, RANGE);
        ligi_draw_fini(&draw);
    }
}

static void test_log_ends(void **state)
{
    (void)state;
    ligi_draw draw = {0};
    assert_ok(ligi_draw_init(&draw, LIG_PARAMS_SAMPLE_LOG_UNIFORM, 4000000000u, NULL));
    assert_int_equal(ligi_draw_log(&draw, 0), 0);
    assert_true(ligi_draw_log(&draw, nextafter(1, 0)) == 3999999999u);
    assert_true(ligi_draw_log(&draw, 1) == 3999999999u);
    ligi_draw_fini(&draw);
}

/* Draws from the list of all items must be distributed like draws from the range. */
static void test_among(void **state)
{
    (void)state;
    double weights[RANGE], expected[RANGE];
    uint32_t items[RANGE], *out = malloc(DRAWS * sizeof *out);
    weigh(weights);
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_draw draw = {0};
        ligi_rng rng;
        uint64_t counts[RANGE] = {0};
        uint32_t got, item_count = 0;
        double sum = 0;
        ligi_rng_init(&rng, 4, 0, kind);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        for (uint32_t i = 0; i < RANGE; i++)
            if (i % 3 == 0)
                items[item_count++] = i;
        ligi_among among = {items, item_count, NULL};
        assert_ok(ligi_draw_among(&draw, &rng, &among, DRAWS, out, &got));
        assert_int_equal(got, DRAWS);
        for (uint32_t i = 0; i < got; i++)
            counts[out[i]]++;
        for (uint32_t i = 0; i < RANGE; i++)
            sum += i % 3 == 0 ? ligi_draw_weight(&draw, i) / RANGE : 0;
        for (uint32_t i = 0; i < RANGE; i++)
            expected[i] = i % 3 == 0 ? ligi_draw_weight(&draw, i) / RANGE / sum * DRAWS : 0;
        assert_close(counts, expected, RANGE);
        ligi_draw_fini(&draw);
    }
    free(out);
}

/* The textbook probability of the first of two draws, and of the second given the first; both
 * implementations must match it. */
static void second_of_two(int fallback, uint64_t *counts)
{
    const double weights[4] = {8, 4, 2, 1};
    ligi_draw draw = {0};
    ligi_rng rng;
    uint32_t out[2], got;
    ligi_rng_init(&rng, 5, 0, 0);
    assert_ok(ligi_draw_init(&draw, LIG_PARAMS_SAMPLE_WEIGHTS, 4, weights));
    for (int i = 0; i < DRAWS; i++) {
        ligi_seen seen = {0};
        ligi_among all = {NULL, 4, &seen};
        if (fallback)
            assert_ok(ligi_draw_among(&draw, &rng, &all, 2, out, &got));
        else
            assert_ok(ligi_draw_many(&draw, &rng, &seen, 2, out));
        counts[out[0] * 4 + out[1]]++;
        ligi_seen_fini(&seen);
    }
    ligi_draw_fini(&draw);
}

static void test_without_replacement(void **state)
{
    (void)state;
    const double weights[4] = {8, 4, 2, 1};
    double expected[16] = {0};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 4; j++)
            expected[i * 4 + j] =
                i == j ? 0 : DRAWS * weights[i] / 15 * weights[j] / (15 - weights[i]);
    for (int fallback = 0; fallback < 2; fallback++) {
        uint64_t counts[16] = {0};
        second_of_two(fallback, counts);
        assert_close(counts, expected, 16);
    }
}

static void test_all_of_them(void **state)
{
    (void)state;
    double weights[RANGE];
    uint32_t out[RANGE];
    weigh(weights);
    weights[5] = 1e308; /* nearly all the probability; the rest is found by the walk */
    for (uint32_t kind = 0; kind < 3; kind++) {
        ligi_draw draw = {0};
        ligi_rng rng;
        ligi_seen seen = {0};
        int here[RANGE] = {0};
        ligi_rng_init(&rng, 6, 0, kind);
        assert_ok(ligi_draw_init(&draw, kind, RANGE, weights));
        uint32_t half = draw.available / 2, rest = draw.available - half;
        assert_ok(ligi_draw_many(&draw, &rng, &seen, half, out));
        assert_ok(ligi_draw_many(&draw, &rng, &seen, rest, out + half));
        for (uint32_t i = 0; i < draw.available; i++)
            assert_int_equal(here[out[i]]++, 0);
        assert_status(ligi_draw_many(&draw, &rng, &seen, 1, out), LIG_E_LIMIT);
        assert_says("with replacement");
        ligi_seen_fini(&seen);
        ligi_draw_fini(&draw);
    }
}

static void test_seen(void **state)
{
    (void)state;
    enum { MOST = 40 };
    ligi_seen seen = {0};
    ligi_rng rng;
    int here[MOST] = {0};
    ligi_rng_init(&rng, 9, 0, 0);
    assert_ok(ligi_seen_reserve(&seen, MOST / 2));
    for (int step = 0; step < 50000; step++) {
        uint32_t item = (uint32_t)ligi_rng_below(&rng, MOST);
        if (here[item]) {
            assert_int_equal(ligi_seen_add(&seen, item), 0);
            ligi_seen_remove(&seen, item);
        } else {
            assert_ok(ligi_seen_reserve(&seen, 1));
            assert_int_equal(ligi_seen_add(&seen, item), 1);
        }
        here[item] = !here[item];
        for (uint32_t i = 0; i < MOST; i++)
            assert_int_equal(ligi_seen_has(&seen, i), here[i]);
    }
    ligi_seen_fini(&seen);
}

static void test_refused(void **state)
{
    (void)state;
    ligi_draw draw = {0};
    double weights[3] = {1, -1, 1};
    assert_status(ligi_draw_init(&draw, 0, 0, NULL), LIG_E_INVALID);
    assert_status(ligi_draw_init(&draw, 3, 5, NULL), LIG_E_INVALID);
    assert_status(ligi_draw_init(&draw, 2, 3, NULL), LIG_E_INVALID);
    assert_status(ligi_draw_init(&draw, 2, 3, weights), LIG_E_INVALID);
    assert_says("weight 1 is -1");
    weights[1] = INFINITY;
    assert_status(ligi_draw_init(&draw, 2, 3, weights), LIG_E_INVALID);
    weights[0] = weights[1] = weights[2] = 0;
    assert_status(ligi_draw_init(&draw, 2, 3, weights), LIG_E_INVALID);
    assert_says("all 3 weights are 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),       cmocka_unit_test(test_below),
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_log_ends),
        cmocka_unit_test(test_among),         cmocka_unit_test(test_without_replacement),
        cmocka_unit_test(test_all_of_them),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
