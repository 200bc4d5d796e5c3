#include "base/clock.h"
#include "base/test.h"
#include "mesh/trace/stamp_clock.h"

#define MS INT64_C(1000000)

/* A counter of 3 ticks a nanosecond whose reading takes 30 ns. */
static int64_t set(ligi_stamp_clock *ticks, int64_t ns)
{
    uint64_t tick = 3 * (uint64_t)ns;
    return ligi_stamp_clock_set(ticks, tick - 45, ns, tick + 45);
}

static void learn(ligi_stamp_clock *ticks)
{
    *ticks = (ligi_stamp_clock){.trusted = 1};
    set(ticks, 1000 * MS);
    set(ticks, 1025 * MS);
}

static void test_the_clock_is_asked_until_a_tick_is_known(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks = {.trusted = 1};
    assert_int_equal(ligi_stamp_clock_at(&ticks, 17), -1);
    assert_int_equal(set(&ticks, 1000 * MS), 1000 * MS);
    assert_int_equal(ligi_stamp_clock_at(&ticks, 3 * 1000 * MS + 3), -1);
    assert_int_equal(set(&ticks, 1001 * MS), 1001 * MS);
    assert_int_equal(ligi_stamp_clock_at(&ticks, 3 * 1001 * MS + 3), -1);
    assert_int_equal(set(&ticks, 1025 * MS), 1025 * MS);
    assert_in_range(ligi_stamp_clock_at(&ticks, 3 * (1025 * MS + 500)), 1025 * MS + 499,
                    1025 * MS + 501);
}

static void test_it_serves_for_a_millisecond(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks;
    learn(&ticks);
    assert_in_range(ligi_stamp_clock_at(&ticks, 3 * (1025 * MS + MS - 1000)), 1026 * MS - 1001,
                    1026 * MS - 999);
    assert_int_equal(ligi_stamp_clock_at(&ticks, 3 * (1026 * MS + 1000)), -1);
    assert_int_equal(ligi_stamp_clock_at(&ticks, 3 * (1025 * MS - 1000)), -1); /* it went back */
    set(&ticks, 1040 * MS);
    assert_in_range(ligi_stamp_clock_at(&ticks, 3 * (1040 * MS + 70)), 1040 * MS + 69,
                    1040 * MS + 71);
}

static void test_a_reading_that_was_interrupted_sets_nothing(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks;
    learn(&ticks);
    uint64_t before = 3 * 1030 * MS;
    assert_int_equal(ligi_stamp_clock_set(&ticks, before, 1030 * MS, before + 3 * 10 * MS),
                     1030 * MS);
    assert_int_equal(ligi_stamp_clock_at(&ticks, before + 3 * 10 * MS), -1);
    assert_int_equal(ticks.tick, 3 * 1025 * MS);
}

static void test_time_does_not_go_back(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks;
    learn(&ticks);
    int64_t last = ligi_stamp_clock_at(&ticks, 3 * (1025 * MS + 900));
    assert_int_equal(set(&ticks, 1025 * MS + 400), last);
    assert_int_equal(ligi_stamp_clock_at(&ticks, 3 * (1025 * MS + 500)), last);
}

/* A reading from before the lock was acquired, which another thread held for long. */
static void test_what_was_waited_for_is_seen(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks;
    learn(&ticks);
    assert_in_range(ligi_stamp_clock_past(&ticks, 3 * (1025 * MS + 300)), 1025 * MS + 299,
                    1025 * MS + 301);
    set(&ticks, 1060 * MS);
    assert_in_range(ligi_stamp_clock_past(&ticks, 3 * 1030 * MS), 1030 * MS - 5, 1030 * MS + 5);
    assert_int_equal(ticks.last, 1060 * MS);
    assert_int_equal(ligi_stamp_clock_past(&ticks, 3 * (1062 * MS)), -1);
    set(&ticks, 3000 * MS);
    assert_int_equal(ligi_stamp_clock_past(&ticks, 3 * 1060 * MS), -1);
    /* Later readings are not earlier. */
    int64_t then = ligi_stamp_clock_past(&ticks, 3 * (3000 * MS + 900));
    assert_int_equal(set(&ticks, 3000 * MS + 400), then);
}

/* A machine that was migrated or suspended. */
static void test_a_counter_that_jumps_is_not_believed(void **unused)
{
    (void)unused;
    static const uint64_t jumps[] = {UINT64_C(1) << 40, -(UINT64_C(1) << 40), -(UINT64_C(74) * MS)};
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        ligi_stamp_clock ticks;
        learn(&ticks);
        uint64_t scale = ticks.scale, tick = 3 * 1050 * MS + jumps[i];
        assert_int_equal(ligi_stamp_clock_set(&ticks, tick, 1050 * MS, tick + 90), 1050 * MS);
        assert_int_equal(ticks.scale, scale);
        assert_in_range(ligi_stamp_clock_at(&ticks, tick + 45 + 300), 1050 * MS + 99,
                        1050 * MS + 101);
    }
}

static void test_it_is_the_clock(void **unused)
{
    (void)unused;
    ligi_stamp_clock ticks, plain = {0};
    ligi_stamp_clock_init(&ticks);
    int64_t began = ligi_now_ns(), before, last = 0;
    while ((before = ligi_now_ns()) < began + 60 * MS) {
        uint64_t reading = ligi_stamp_clock_read(&ticks);
        int64_t ns = ligi_stamp_clock_ns(&ticks, reading);
        int64_t then = ligi_stamp_clock_then(&ticks, reading);
        int64_t after = ligi_now_ns();
        assert_in_range(ns, before - MS, after + MS);
        assert_in_range(then, before - MS, after + MS);
        assert_true(ns >= last);
        last = ns;
    }
    assert_int_equal(ligi_stamp_clock_ns(&plain, 12345), 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_clock_is_asked_until_a_tick_is_known),
        cmocka_unit_test(test_it_serves_for_a_millisecond),
        cmocka_unit_test(test_a_reading_that_was_interrupted_sets_nothing),
        cmocka_unit_test(test_time_does_not_go_back),
        cmocka_unit_test(test_what_was_waited_for_is_seen),
        cmocka_unit_test(test_a_counter_that_jumps_is_not_believed),
        cmocka_unit_test(test_it_is_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
