#include "base/codec.h"
#include "base/test.h"

static void numbers_come_back(void **state)
{
    (void)state;
    static const uint64_t values[] = {0,         1, 127, 128, 300, UINT32_MAX, UINT64_C(1) << 63,
                                      UINT64_MAX};
    ligi_writer writer = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ligi_put_varint(&writer, values[i]);
        ligi_put_u64(&writer, values[i]);
        ligi_put_u32(&writer, (uint32_t)values[i]);
        ligi_put_u8(&writer, (uint8_t)values[i]);
    }
    ligi_put_f64(&writer, -0.5);
    assert_int_equal(writer.status, LIG_OK);
    ligi_reader reader = {.data = writer.data, .bytes = writer.bytes};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_true(ligi_get_varint(&reader) == values[i]);
        assert_true(ligi_get_u64(&reader) == values[i]);
        assert_true(ligi_get_u32(&reader) == (uint32_t)values[i]);
        assert_true(ligi_get_u8(&reader) == (uint8_t)values[i]);
    }
    assert_true(ligi_get_f64(&reader) == -0.5);
    assert_false(reader.failed);
    assert_int_equal(reader.at, reader.bytes);
    ligi_get_u8(&reader);
    assert_true(reader.failed);
    ligi_writer_fini(&writer);
}

static void layout_is_little_endian(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    ligi_put_u32(&writer, 0x01020304);
    ligi_put_varint(&writer, 300);
    ligi_put_text(&writer, "ab");
    static const uint8_t expected[] = {4, 3, 2, 1, 0xac, 2, 2, 'a', 'b', 0};
    assert_int_equal(writer.bytes, sizeof expected);
    assert_memory_equal(writer.data, expected, sizeof expected);
    ligi_writer_fini(&writer);
    uint8_t key[8];
    ligi_put_be64(key, 0x0102030405060708);
    assert_int_equal(key[0], 1);
    assert_true(ligi_get_be64(key) == 0x0102030405060708);
}

static int text_fails(const void *data, size_t bytes, size_t max)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    assert_string_equal(ligi_get_text(&reader, max), "");
    return reader.failed;
}

static void hostile_texts_fail(void **state)
{
    (void)state;
    assert_true(text_fails("\x05"
                           "abc",
                           4, 100)); /* longer than what is there */
    assert_true(text_fails("\x03"
                           "abcd",
                           5, 100)); /* no NUL at its end */
    assert_true(text_fails("\x03"
                           "a\0c\0",
                           5, 100)); /* a NUL inside */
    assert_true(text_fails("\x03"
                           "abc\0",
                           5, 2)); /* over the limit */
    assert_true(text_fails("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, 100));
    assert_true(text_fails("", 0, 100));
}

static void hostile_counts_and_varints_fail(void **state)
{
    (void)state;
    ligi_reader many = {.data = (const uint8_t *)"\xff\xff\x7f"
                                                 "abcdefgh",
                        .bytes = 11};
    assert_int_equal(ligi_get_count(&many, 4), 0);
    assert_true(many.failed);
    ligi_reader two = {.data = (const uint8_t *)"\x02"
                                                "abcdefgh",
                       .bytes = 9};
    assert_int_equal(ligi_get_count(&two, 4), 2);
    assert_false(two.failed);
    ligi_reader endless = {.data = (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                           .bytes = 11};
    ligi_get_varint(&endless);
    assert_true(endless.failed);
    ligi_reader overflow = {.data = (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                            .bytes = 10};
    ligi_get_varint(&overflow);
    assert_true(overflow.failed);
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "abc", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf"};
    static const char *const bad[] = {"\x80",         "\xc0\xaf",     "\xc3",
                                      "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xff",         "a\xe2\x82",    "\xf0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(ligi_utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ligi_utf8_valid(bad[i], strlen(bad[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),  cmocka_unit_test(layout_is_little_endian),
        cmocka_unit_test(hostile_texts_fail), cmocka_unit_test(hostile_counts_and_varints_fail),
        cmocka_unit_test(utf8_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
