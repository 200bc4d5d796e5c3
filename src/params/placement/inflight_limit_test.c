#include "params/placement/inflight_limit.h"

#include "base/test.h"

static void so_many_rows_are_under_way(void **state)
{
    ligi_throttle throttle = {0};
    const uint64_t good = LIGI_WANTS_GOOD;

    (void)state;
    ligi_throttle_round(&throttle, 5 * good, 1000, 100);
    assert_false(ligi_throttle_holds(&throttle, good - 1, 0));
    assert_true(ligi_throttle_holds(&throttle, good, 0));
    assert_false(ligi_throttle_holds(&throttle, 2 * good - 1, 1));
    assert_true(ligi_throttle_holds(&throttle, 2 * good, 1));
}

static void what_does_not_come_holds_nothing_up(void **state)
{
    ligi_throttle throttle = {0};
    const uint64_t good = LIGI_WANTS_GOOD;

    (void)state;
    ligi_throttle_round(&throttle, 0, 1000, 100);
    ligi_throttle_round(&throttle, good, 1199, 100);
    assert_true(ligi_throttle_holds(&throttle, good, 0));
    ligi_throttle_round(&throttle, good, 1200, 100);
    assert_false(ligi_throttle_holds(&throttle, 2 * good - 1, 0));
    assert_true(ligi_throttle_holds(&throttle, 2 * good, 0));
    ligi_throttle_round(&throttle, 2 * good, 1399, 100);
    assert_true(ligi_throttle_holds(&throttle, 2 * good, 0));
    ligi_throttle_round(&throttle, 2 * good - 1, 1399, 100); /* one has arrived */
    assert_true(ligi_throttle_holds(&throttle, good, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_rows_are_under_way),
        cmocka_unit_test(what_does_not_come_holds_nothing_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
