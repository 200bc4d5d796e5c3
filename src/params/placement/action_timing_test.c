#include "params/placement/action_timing.h"

#include "base/test.h"

#include <math.h>

/* The least k with P(X <= k) >= 0.9999, summed term by term. */
static int64_t exact_quantile(double mean)
{
    double term = exp(-mean), sum = term;
    int64_t k = 0;

    while (sum < 0.9999) {
        k++;
        term *= mean / (double)k;
        sum += term;
    }
    return k;
}

static void the_bound_is_the_quantile(void **state)
{
    (void)state;
    for (double mean = 0.5; mean <= 500; mean += 0.5) {
        int64_t exact = exact_quantile(mean), bound = ligi_poisson_bound(mean);
        if (bound < exact || bound > exact + 1)
            fail_msg("mean %.1f: %lld, exactly %lld", mean, (long long)bound, (long long)exact);
    }
    assert_int_equal(ligi_poisson_bound(0), 0);
    assert_int_equal(ligi_poisson_bound(-1), 0);
    assert_int_equal(ligi_poisson_bound(NAN), 0);
    assert_true(ligi_poisson_bound(1e300) > 0);
}

static void what_was_seen_last_counts_when_it_is_more(void **state)
{
    ligi_action_timing timing;

    (void)state;
    ligi_action_timing_init(&timing);
    assert_int_equal(ligi_action_timing_window(&timing), ligi_poisson_bound(20));
    ligi_action_timing_round(&timing, 100, 1000, 1000);
    assert_int_equal(ligi_action_timing_window(&timing), ligi_poisson_bound(200));
    ligi_action_timing_round(&timing, 1, 1000, 1000);
    assert_float_equal(timing.lambda, 19 - 1.8, 1e-9);
    assert_int_equal(ligi_action_timing_window(&timing), ligi_poisson_bound(2 * timing.lambda));
    ligi_action_timing_round(&timing, 0, 1000, 1000);
    assert_float_equal(timing.lambda, 19 - 1.8, 1e-9);
}

static void it_converges(void **state)
{
    ligi_action_timing timing;

    (void)state;
    ligi_action_timing_init(&timing);
    for (int i = 0; i < 200; i++)
        ligi_action_timing_round(&timing, 3, 1000, 1000);
    assert_float_equal(timing.lambda, 3, 1e-6);
    assert_true(ligi_action_timing_window(&timing) == ligi_poisson_bound(6.0000001) ||
                ligi_action_timing_window(&timing) == ligi_poisson_bound(6));
}

static void a_pause_is_no_long_round(void **state)
{
    ligi_action_timing timing;

    (void)state;
    ligi_action_timing_init(&timing);
    ligi_action_timing_round(&timing, 1000000, 1000000000, 1000000);
    assert_float_equal(timing.last, 16000, 1e-6);
    ligi_action_timing_round(&timing, 1, INT64_MAX, 1);
    assert_true(ligi_action_timing_window(&timing) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_is_the_quantile),
        cmocka_unit_test(what_was_seen_last_counts_when_it_is_more),
        cmocka_unit_test(it_converges),
        cmocka_unit_test(a_pause_is_no_long_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
