#include "params/wire/params_message.h"

#include "base/test.h"

static ligi_params_hello hello_of(uint32_t flags)
{
    static const lig_params_table table = {.key_count = 10, .length = 4};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    ligi_params_hello own;
    options.node_count = 3;
    options.worker_count = 2;
    options.tables = &table;
    options.table_count = 1;
    options.flags = flags;
    ligi_params_hello_make(&options, &own);
    return own;
}

static ligi_params_hello own_hello(void)
{
    return hello_of(0);
}

static lig_status check(ligi_params_message message, size_t tail_bytes, uint64_t payload_bytes)
{
    uint8_t head[LIGI_PARAMS_HEAD_MAX + 8] = {0};
    ligi_params_hello own = own_hello();
    ligi_params_message read;
    message.version = LIGI_PARAMS_MESSAGE_VERSION;
    memcpy(head, &message, sizeof message);
    memset(head + sizeof message, 'x', tail_bytes);
    return ligi_params_message_check(head, sizeof message + tail_bytes, payload_bytes,
                                     LIGI_PARAMS_PAYLOAD_MAX, &own, &read);
}

static void test_messages_that_fit(void **unused)
{
    (void)unused;
    ligi_params_message ask = {.kind = LIGI_PARAMS_REQUEST, .verb = LIGI_PULL, .count = 3};
    assert_ok(check(ask, 0, 24 + 16));
    ask.verb = LIGI_PUSH;
    ask.flags = LIGI_PARAMS_RATES;
    assert_ok(check(ask, 8, 24 + 16 + 48));
    ligi_params_message answer = {.kind = LIGI_PARAMS_RESPONSE,
                                  .flags = LIGI_PARAMS_POSITIONS | LIGI_PARAMS_MOVES |
                                           LIGI_PARAMS_VALUES,
                                  .count = 3};
    assert_ok(check(answer, 0, 16 + 24 + 48));
    answer.flags = LIGI_PARAMS_FAILED;
    answer.number = LIG_E_LIMIT;
    assert_ok(check(answer, 20, 0));
    assert_ok(check((ligi_params_message){.kind = LIGI_PARAMS_SHARE}, 0, UINT64_C(1) << 40));
    assert_ok(check((ligi_params_message){.kind = LIGI_PARAMS_LOCATION, .count = 2}, 0, 48));
    assert_ok(check((ligi_params_message){.kind = LIGI_PARAMS_SYNC}, 0, 0));
}

static void test_messages_that_do_not(void **unused)
{
    (void)unused;
    const ligi_params_message ask = {.kind = LIGI_PARAMS_REQUEST, .count = 3};
    ligi_params_message bad[] = {ask, ask, ask, ask, ask, ask, ask};
    bad[0].kind = 0;
    bad[1].kind = LIGI_PARAMS_SNAPSHOT + 1;
    bad[2].verb = 3;
    bad[3].origin = 3;
    bad[4].worker = 2;
    bad[5].hops = LIGI_PARAMS_HOPS_MAX + 1;
    bad[6].flags = 2;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_status(check(bad[i], 0, 40), LIG_E_CORRUPT);
    assert_status(check(ask, 0, 39), LIG_E_CORRUPT);
    assert_status(check(ask, 0, 41), LIG_E_CORRUPT);
    assert_status(check(ask, 8, 40), LIG_E_CORRUPT);
    assert_status(check((ligi_params_message){.kind = LIGI_PARAMS_REQUEST}, 0, 0), LIG_E_CORRUPT);
    ligi_params_message many = {.kind = LIGI_PARAMS_UPDATE, .count = UINT32_MAX};
    assert_status(check(many, 0, LIGI_PARAMS_PAYLOAD_MAX), LIG_E_CORRUPT);
    many = (ligi_params_message){.kind = LIGI_PARAMS_SYNC, .count = 1};
    assert_status(check(many, 0, LIGI_PARAMS_PAYLOAD_MAX + 1), LIG_E_CORRUPT);
    ligi_params_message answer = {
        .kind = LIGI_PARAMS_RESPONSE, .flags = LIGI_PARAMS_VALUES, .count = 1};
    assert_status(check(answer, 0, 16), LIG_E_CORRUPT);
    answer.flags |= LIGI_PARAMS_POSITIONS;
    assert_ok(check(answer, 0, 16));
    answer.verb = LIGI_PUSH;
    assert_status(check(answer, 0, 16), LIG_E_CORRUPT);
    answer = (ligi_params_message){
        .kind = LIGI_PARAMS_RESPONSE, .flags = LIGI_PARAMS_FAILED, .count = 1};
    assert_status(check(answer, 4, 0), LIG_E_CORRUPT); /* LIG_OK is not a failure */
    answer.number = 1000;
    assert_status(check(answer, 4, 0), LIG_E_CORRUPT);
    uint8_t head[8] = {0};
    ligi_params_hello own = own_hello();
    ligi_params_message read;
    assert_status(
        ligi_params_message_check(head, sizeof head, 0, LIGI_PARAMS_PAYLOAD_MAX, &own, &read),
        LIG_E_CORRUPT);
}

static void test_a_long_row_is_alone(void **unused)
{
    (void)unused;
    uint64_t row = 3 * 8 * (uint64_t)LIG_PARAMS_LENGTH_MAX, most = ligi_params_payload_max(row);
    ligi_params_hello own = own_hello();
    ligi_params_message read,
        message = {.version = LIGI_PARAMS_MESSAGE_VERSION, .kind = LIGI_PARAMS_UPDATE, .count = 1};
    uint64_t bytes = ligi_params_message_front(&message) + row;
    assert_int_equal(ligi_params_payload_max(4), LIGI_PARAMS_PAYLOAD_MAX);
    assert_ok(ligi_params_message_check(&message, sizeof message, bytes, most, &own, &read));
    assert_status(ligi_params_message_check(&message, sizeof message, most + 1, most, &own, &read),
                  LIG_E_CORRUPT);
    assert_status(ligi_params_message_check(&message, sizeof message, bytes,
                                            LIGI_PARAMS_PAYLOAD_MAX, &own, &read),
                  LIG_E_CORRUPT);
}

static void test_parts_are_where_they_are(void **unused)
{
    (void)unused;
    _Alignas(8) uint8_t head[LIGI_PARAMS_HEAD_MAX] = {0}, payload[104];
    ligi_params_message message = {.version = LIGI_PARAMS_MESSAGE_VERSION,
                                   .kind = LIGI_PARAMS_REQUEST,
                                   .verb = LIGI_SET,
                                   .flags = LIGI_PARAMS_RATES,
                                   .count = 3};
    ligi_params_parts parts;
    ligi_params_message_open(&message, head, LIGI_PARAMS_HEAD_BYTES + 8, payload, sizeof payload,
                             &parts);
    assert_ptr_equal(parts.keys, payload);
    assert_ptr_equal(parts.positions, payload + 24);
    assert_ptr_equal(parts.rows, payload + 40);
    assert_int_equal(parts.rows_bytes, 64);
    assert_ptr_equal(parts.rates, head + LIGI_PARAMS_HEAD_BYTES);
    message.kind = LIGI_PARAMS_RESPONSE;
    message.flags = LIGI_PARAMS_POSITIONS | LIGI_PARAMS_MOVES | LIGI_PARAMS_VALUES;
    ligi_params_message_open(&message, head, LIGI_PARAMS_HEAD_BYTES, payload, sizeof payload,
                             &parts);
    assert_ptr_equal(parts.positions, payload);
    assert_ptr_equal(parts.moves, payload + 16);
    assert_ptr_equal(parts.rows, payload + 40);
}

static void test_a_hello_names_the_difference(void **unused)
{
    (void)unused;
    ligi_params_hello own = own_hello(), other = own, read;
    other.rank = 2;
    assert_ok(ligi_params_hello_check(&own, &other, sizeof other, &read));
    assert_int_equal(read.rank, 2);
    assert_status(ligi_params_hello_check(&own, &other, 10, &read), LIG_E_UNSUPPORTED);
    /* Network settings are local to a node and are not compared. */
    other = hello_of(LIG_PARAMS_TRUSTED_FABRIC | LIG_PARAMS_ANY_DEVICE);
    assert_ok(ligi_params_hello_check(&own, &other, sizeof other, &read));
    other = hello_of(LIG_PARAMS_HASHED);
    assert_status(ligi_params_hello_check(&own, &other, sizeof other, &read), LIG_E_MISMATCH);
    assert_says("flags");
    other = own;
    other.rank = 2;
    other.techniques = 1;
    assert_status(ligi_params_hello_check(&own, &other, sizeof other, &read), LIG_E_MISMATCH);
    assert_says("node 2");
    assert_says("techniques");
    other = own;
    other.tables[0].init++;
    assert_status(ligi_params_hello_check(&own, &other, sizeof other, &read), LIG_E_MISMATCH);
    assert_says("init");
    own.group_id = 1;
    other = own;
    other.group_id = 2;
    assert_status(ligi_params_hello_check(&own, &other, sizeof other, &read), LIG_E_DENIED);
    other = own;
    other.magic[0] ^= 1;
    assert_status(ligi_params_hello_check(&own, &other, sizeof other, &read), LIG_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_that_fit),
        cmocka_unit_test(test_messages_that_do_not),
        cmocka_unit_test(test_a_long_row_is_alone),
        cmocka_unit_test(test_parts_are_where_they_are),
        cmocka_unit_test(test_a_hello_names_the_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
