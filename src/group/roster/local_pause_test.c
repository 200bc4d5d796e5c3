#include "group/roster/local_pause.h"

#include "base/test.h"

#define MS INT64_C(1000000)
#define LIVENESS (1000 * MS)

static void test_detects_a_gap_of_half_of_liveness(void **state)
{
    static const struct {
        int64_t tick, now;
        int paused;
    } cases[] = {
        {0, 0, 0},
        {0, 500 * MS, 0},
        {0, 500 * MS + 1, 1},
        {-200 * MS, 400 * MS, 1},
        {7000 * MS, 7200 * MS, 0},
        {INT64_MIN, 0, 1}, /* the first tick: nothing is known of the time before */
        {INT64_MIN, INT64_MAX, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(ligi_pause_detect(cases[i].tick, cases[i].now, LIVENESS), cases[i].paused);
}

static void test_silence_excludes_the_pause(void **state)
{
    (void)state;
    assert_int_equal(ligi_pause_silence_ns(100, 0, 150), 50);
    assert_int_equal(ligi_pause_silence_ns(100, 140, 150), 10); /* stopped from 100 to 140 */
    assert_int_equal(ligi_pause_silence_ns(145, 140, 150), 5);
}

static void test_a_pause_is_recent_until_messages_are_read(void **state)
{
    (void)state;
    int64_t slept = 5000 * MS, awake = 9000 * MS;
    assert_true(ligi_pause_is_recent(slept, 0, awake, LIVENESS)); /* not noticed yet */
    assert_true(ligi_pause_is_recent(awake, awake, awake + 199 * MS, LIVENESS));
    assert_false(ligi_pause_is_recent(awake, awake, awake + 200 * MS, LIVENESS));
    assert_false(ligi_pause_is_recent(awake, 0, awake + 10 * MS, LIVENESS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detects_a_gap_of_half_of_liveness),
        cmocka_unit_test(test_silence_excludes_the_pause),
        cmocka_unit_test(test_a_pause_is_recent_until_messages_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
