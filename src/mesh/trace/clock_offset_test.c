#include "base/test.h"
#include "mesh/trace/clock_offset.h"

#include <stdlib.h>

/* A peer whose clock is `ahead`, with transit times of `there` and `back` nanoseconds. */
static void exchange(ligi_clock_offset *offset, int64_t now, int64_t ahead, int64_t there,
                     int64_t back)
{
    int64_t heard = now + there + ahead;
    uint64_t moments[4] = {(uint64_t)now, (uint64_t)heard, (uint64_t)(heard + 300),
                           (uint64_t)(now + there + 300 + back)};
    ligi_clock_offset_feed(offset, moments);
}

static void test_the_fastest_counts(void **unused)
{
    (void)unused;
    ligi_clock_offset offset = {0};
    assert_int_equal(ligi_clock_offset_get(&offset), 0);
    exchange(&offset, 1000000, -5000000, 90000, 10000);
    assert_int_equal(ligi_clock_offset_get(&offset), -5000000 + 40000);
    exchange(&offset, 2000000, -5000000, 1000, 1000);
    assert_int_equal(ligi_clock_offset_get(&offset), -5000000);
    exchange(&offset, 3000000, -5000000, 5000, 90000);
    assert_int_equal(ligi_clock_offset_get(&offset), -5000000);
}

static void test_never_wrong_by_more_than_half_the_way(void **unused)
{
    (void)unused;
    srand(3);
    for (int round = 0; round < 1000; round++) {
        ligi_clock_offset offset = {0};
        int64_t ahead = rand() - RAND_MAX / 2, fastest = INT64_MAX, now = 0;
        for (int i = 0; i < 20; i++) {
            int64_t there = 500 + rand() % 100000, back = 500 + rand() % 100000;
            exchange(&offset, now += 1000000, ahead, there, back);
            if (there + back < fastest)
                fastest = there + back;
        }
        int64_t wrong = llabs(ligi_clock_offset_get(&offset) - ahead);
        assert_true(wrong <= fastest / 2 + 1);
    }
}

static void test_a_drifting_clock_is_followed(void **unused)
{
    (void)unused;
    ligi_clock_offset offset = {0};
    exchange(&offset, 0, 1000, 10, 10); /* the fastest of all, but too long ago */
    for (int i = 0; i < 3 * LIGI_OFFSET_WINDOW; i++)
        exchange(&offset, 1000 * i, 900000, 500, 500);
    assert_int_equal(ligi_clock_offset_get(&offset), 900000);
}

static void test_stamps_keep_their_order(void **unused)
{
    (void)unused;
    ligi_clock_offset offset = {0};
    exchange(&offset, 0, 777, 40, 40);
    uint64_t stamps[8] = {100, 110, 777 + 150, 777 + 160, 777 + 170, 777 + 180, 220, 230};
    ligi_clock_offset_apply(&offset, stamps);
    const uint64_t right[8] = {100, 110, 150, 160, 170, 180, 220, 230};
    assert_memory_equal(stamps, right, sizeof right);
    uint64_t wild[8] = {100, 110, 5, 0, UINT64_MAX, 99, 220, 230};
    ligi_clock_offset_apply(&offset, wild);
    for (int i = 1; i < 8; i++)
        assert_true(wild[i - 1] <= wild[i]);
}

static void test_lies_are_not_believed(void **unused)
{
    (void)unused;
    ligi_clock_offset offset = {0};
    exchange(&offset, 0, 50, 100, 100);
    ligi_clock_offset_feed(&offset, (uint64_t[]){1000, 0, UINT64_MAX / 4, 1001});
    assert_int_equal(ligi_clock_offset_get(&offset), 50);
    offset.exact = 1;
    assert_int_equal(ligi_clock_offset_get(&offset), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_counts),
        cmocka_unit_test(test_never_wrong_by_more_than_half_the_way),
        cmocka_unit_test(test_a_drifting_clock_is_followed),
        cmocka_unit_test(test_stamps_keep_their_order),
        cmocka_unit_test(test_lies_are_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
