#include "backend/rados/format/rados_names.h"
#include "base/test.h"

static void test_keys_are_in_order(void **state)
{
    (void)state;
    ligi_rados_name small = ligi_rados_log_key(9), large = ligi_rados_log_key(10);
    uint64_t number = 0;

    assert_true(strcmp(small.text, large.text) < 0);
    assert_true(strcmp(large.text, ligi_rados_log_key(UINT64_MAX).text) < 0);
    assert_true(ligi_rados_key_number(large.text, strlen(large.text), "log/", &number));
    assert_int_equal(number, 10);
    assert_false(ligi_rados_key_number(large.text, strlen(large.text), "sealed/", &number));
    assert_false(ligi_rados_key_number("log/000000000000000x", 20, "log/", &number));
    assert_false(ligi_rados_key_number("log/00", 6, "log/", &number));
}

static void test_writers(void **state)
{
    (void)state;
    ligi_rados_body body = {.object = {LIGI_OBJECT_PACK, UINT64_C(0xfedcba9876543210)}};
    ligi_rados_token token;
    uint64_t id = 0;

    for (size_t i = 0; i < sizeof body.token.bytes; i++)
        body.token.bytes[i] = (uint8_t)(37 * i + 200);
    ligi_rados_name key = ligi_rados_writer_key("draft/", &body);
    assert_true(ligi_rados_key_writer(key.text, strlen(key.text), "draft/", &id, &token));
    assert_int_equal(id, body.object.id);
    assert_memory_equal(&token, &body.token, sizeof token);
    assert_false(ligi_rados_key_writer(key.text, strlen(key.text) - 1, "draft/", &id, &token));
    assert_string_equal(ligi_rados_list_name(body.object).text, "packs.f");
    assert_string_equal(ligi_rados_stripe_name(&body, 17).text, "pack.fedcba9876543210.00000011");
    body.object.kind = LIGI_OBJECT_CHECKPOINT;
    assert_string_equal(ligi_rados_list_name(body.object).text, "checkpoints");
    /* The longest name fits. */
    assert_int_equal(strlen(ligi_rados_stripe_name(&body, UINT32_MAX).text), 11 + 16 + 1 + 32 + 9);
}

static void test_values(void **state)
{
    (void)state;
    ligi_rados_body body = {.bytes = 10, .stripe_bytes = 4, .stripes_max = 7}, read = {0};
    uint8_t value[LIGI_RADOS_BODY_BYTES];

    memset(body.token.bytes, 0xab, sizeof body.token.bytes);
    ligi_rados_body_encode(&body, value);
    assert_true(ligi_rados_body_decode(value, sizeof value, &read));
    assert_memory_equal(&read, &body, sizeof body);
    assert_int_equal(ligi_rados_stripe_count(&body), 3);
    body.bytes = 0;
    assert_int_equal(ligi_rados_stripe_count(&body), 1);
    body.bytes = 8;
    assert_int_equal(ligi_rados_stripe_count(&body), 2);
    assert_false(ligi_rados_body_decode(value, sizeof value - 1, &read));
    body.stripe_bytes = 0; /* a division by zero later */
    ligi_rados_body_encode(&body, value);
    assert_false(ligi_rados_body_decode(value, sizeof value, &read));
}

static void test_lock_names(void **state)
{
    (void)state;
    char text[640], long_name[202];

    assert_ok(ligi_rados_lock_name("a/b c-1", text, sizeof text));
    assert_string_equal(text, "lock.a%2fb%20c-1");
    memset(long_name, 'x', sizeof long_name);
    long_name[201] = '\0';
    assert_status(ligi_rados_lock_name(long_name, text, sizeof text), LIG_E_LIMIT);
    long_name[200] = '\0';
    assert_ok(ligi_rados_lock_name(long_name, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_in_order),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_lock_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
