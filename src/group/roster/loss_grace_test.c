#include "group/roster/loss_grace.h"

#include "base/test.h"

static void test_a_suspected_peer_is_lost_at_the_end(void **state)
{
    (void)state;
    int64_t now = 1000, end = ligi_grace_end_ns(now);
    assert_int_equal(end, now + LIGI_LOSS_GRACE_NS);
    assert_false(ligi_grace_is_over(end, now));
    assert_false(ligi_grace_is_over(end, end - 1));
    assert_true(ligi_grace_is_over(end, end));
}

static void test_a_peer_that_nobody_suspects_is_not(void **state)
{
    (void)state;
    assert_false(ligi_grace_is_over(0, INT64_MAX));
    assert_int_equal(ligi_grace_next_ns(0, 7), 7);
    assert_int_equal(ligi_grace_next_ns(0, INT64_MAX), INT64_MAX);
}

static void test_the_next_look_is_the_earlier(void **state)
{
    (void)state;
    assert_int_equal(ligi_grace_next_ns(5, 7), 5);
    assert_int_equal(ligi_grace_next_ns(9, 7), 7);
    assert_int_equal(ligi_grace_next_ns(5, INT64_MAX), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_suspected_peer_is_lost_at_the_end),
        cmocka_unit_test(test_a_peer_that_nobody_suspects_is_not),
        cmocka_unit_test(test_the_next_look_is_the_earlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
