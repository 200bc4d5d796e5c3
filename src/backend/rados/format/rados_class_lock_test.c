#include "backend/rados/format/rados_class_lock.h"
#include "base/test.h"

/* The bytes that librados 16.2 sends for these calls. */
static void test_arguments(void **state)
{
    (void)state;
    const ligi_class_lock lock = {.name = "pin",
                                  .type = LIGI_CLASS_SHARED,
                                  .cookie = "ab",
                                  .duration_ns = INT64_C(3000000005),
                                  .flags = 1};
    static const char expected[] = "\1\1\x1f\0\0\0"
                                   "\3\0\0\0pin"
                                   "\2"
                                   "\2\0\0\0ab"
                                   "\0\0\0\0\0\0\0\0"
                                   "\3\0\0\0\5\0\0\0"
                                   "\1";
    ligi_class_argument made = ligi_class_lock_encode(&lock);

    assert_int_equal(made.size, sizeof expected - 1);
    assert_memory_equal(made.bytes, expected, sizeof expected - 1);
    made = ligi_class_unlock_encode("pin", "ab");
    assert_int_equal(made.size, 19);
    assert_memory_equal(made.bytes, "\1\1\x0d\0\0\0\3\0\0\0pin\2\0\0\0ab", 19);
    made = ligi_class_info_encode("pin");
    assert_int_equal(made.size, 13);
    assert_memory_equal(made.bytes, "\1\1\7\0\0\0\3\0\0\0pin", 13);
}

static void test_answers(void **state)
{
    (void)state;
    uint32_t holders = 9;

    assert_true(ligi_class_info_decode("\1\1\5\0\0\0\0\0\0\0\1", 11, &holders));
    assert_int_equal(holders, 0);
    assert_true(ligi_class_info_decode("\1\1\5\0\0\0\2\1\0\0\1", 11, &holders));
    assert_int_equal(holders, 258);
    assert_false(ligi_class_info_decode("\1\1\5\0\0\0\2\1\0", 9, &holders));
    assert_false(ligi_class_info_decode("\3\2\5\0\0\0\2\1\0\0", 10, &holders));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
