#include "group/roster/group_message.h"

#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>

/* A copy of exactly that size, so that a read past the end is seen by ASan. */
static lig_status decode(const uint8_t *data, size_t bytes, ligi_group_message *message,
                         ligi_join *join)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    lig_status status = ligi_group_message_decode(copy, bytes, message, join);
    free(copy);
    return status;
}

static void check_cuts(const ligi_writer *writer)
{
    ligi_group_message message;
    ligi_join join;
    assert_ok(writer->status);
    for (size_t bytes = 0; bytes < writer->bytes; bytes++)
        assert_status(decode(writer->data, bytes, &message, &join), LIG_E_CORRUPT);
}

static void check_long(ligi_writer *writer)
{
    ligi_group_message message;
    ligi_join join;
    ligi_put_u8(writer, 0);
    assert_status(decode(writer->data, writer->bytes, &message, &join), LIG_E_CORRUPT);
}

static void test_plain_messages(void **state)
{
    (void)state;
    static const ligi_group_message messages[] = {
        {.kind = LIGI_GROUP_MESSAGE_CONFIRM, .number = 1},
        {.kind = LIGI_GROUP_MESSAGE_ANSWER, .number = UINT64_MAX},
        {.kind = LIGI_GROUP_MESSAGE_ARRIVE, .number = 7, .mask = 3, .flags = 1},
        {.kind = LIGI_GROUP_MESSAGE_CANCEL, .number = 8},
        {.kind = LIGI_GROUP_MESSAGE_WAIT, .number = 10000, .text = "worker 1 (2 of 3 have joined)"},
        {.kind = LIGI_GROUP_MESSAGE_REFUSE, .status = LIG_E_EXISTS, .text = "taken"},
        {.kind = LIGI_GROUP_MESSAGE_PROBE, .number = 9},
        {.kind = LIGI_GROUP_MESSAGE_RELEASE},
        {.kind = LIGI_GROUP_MESSAGE_EXPEL, .number = 4, .text = "it was silent"},
        {.kind = LIGI_GROUP_MESSAGE_PASS, .number = 5},
        {.kind = LIGI_GROUP_MESSAGE_FAIL, .number = 6, .status = LIG_E_PEER, .text = "gone"},
        {.kind = LIGI_GROUP_MESSAGE_BEAT},
    };
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        ligi_writer writer = {0};
        ligi_group_message got;
        ligi_join join;
        ligi_group_message_put(&writer, &messages[i]);
        assert_ok(decode(writer.data, writer.bytes, &got, &join));
        assert_int_equal(got.kind, messages[i].kind);
        assert_int_equal(got.number, messages[i].number);
        assert_int_equal(got.mask, messages[i].mask);
        assert_int_equal(got.flags, messages[i].flags);
        assert_int_equal(got.status, messages[i].status);
        assert_string_equal(got.text, messages[i].text);
        check_cuts(&writer);
        check_long(&writer);
        ligi_writer_fini(&writer);
    }
}

static void test_join(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    ligi_group_message message;
    ligi_join got, join = {.role = LIGI_WORKER,
                           .rank = LIGI_RANK_ANY,
                           .server_count = 2,
                           .worker_count = 3,
                           .group_size = 1,
                           .pid = 77,
                           .host = "host\033[2J\n",
                           .blob_bytes = LIGI_BLOB_BYTES_MAX};
    memset(join.blob, 9, sizeof join.blob);
    ligi_group_message_put(&writer, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_JOIN});
    ligi_group_message_put_join(&writer, &join);
    assert_ok(decode(writer.data, writer.bytes, &message, &got));
    assert_string_equal(got.host, "host?[2J?");
    memcpy(got.host, join.host, sizeof got.host);
    assert_int_equal(got.rank, LIGI_RANK_ANY);
    assert_int_equal(got.pid, 77);
    assert_int_equal(got.blob_bytes, join.blob_bytes);
    assert_memory_equal(got.blob, join.blob, join.blob_bytes);
    check_cuts(&writer);
    check_long(&writer);
    ligi_writer_fini(&writer);
}

static void put_entries(ligi_writer *writer, size_t count)
{
    static const uint8_t blob[] = {1, 2, 3};
    for (size_t i = 0; i < count; i++) {
        ligi_group_entry entry = {.member = {.role = LIGI_WORKER,
                                             .rank = (uint32_t)i,
                                             .state = LIGI_LOST,
                                             .incarnation = 4,
                                             .host = "h"},
                                  .why = "gone",
                                  .blob = blob,
                                  .blob_bytes = i % 4};
        ligi_group_message_put_entry(writer, &entry);
    }
}

static void test_roster(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    ligi_group_message got, message = {.kind = LIGI_GROUP_MESSAGE_ROSTER,
                                       .number = 3,
                                       .entry_count = 5,
                                       .welcome = {99, LIGI_SERVER, 1, 2, 1}};
    ligi_join join;
    ligi_group_entry entry;
    ligi_group_message_put(&writer, &message);
    put_entries(&writer, 5);
    assert_ok(ligi_group_message_decode(writer.data, writer.bytes, &got, &join));
    assert_int_equal(got.welcome.id, 99);
    assert_int_equal(got.welcome.incarnation, 2);
    assert_int_equal(got.welcome.last, 1);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(ligi_group_message_entry(&got, &entry), 1);
        assert_int_equal(entry.member.rank, i);
        assert_int_equal(entry.member.state, LIGI_LOST);
        assert_int_equal(entry.blob_bytes, i % 4);
        assert_string_equal(entry.why, "gone");
    }
    assert_int_equal(ligi_group_message_entry(&got, &entry), 0);
    check_cuts(&writer);
    check_long(&writer);
    ligi_writer_fini(&writer);
}

/* Offsets: version 0, kind 1, number 2, then the body. */
static void refuse_byte(const ligi_writer *writer, size_t at, uint8_t value, lig_status expected)
{
    ligi_group_message message;
    ligi_join join;
    uint8_t *copy = malloc(writer->bytes);
    assert_non_null(copy);
    memcpy(copy, writer->data, writer->bytes);
    copy[at] = value;
    assert_status(decode(copy, writer->bytes, &message, &join), expected);
    free(copy);
}

static void test_wrong_values(void **state)
{
    (void)state;
    ligi_writer change = {0}, roster = {0}, fail = {0}, join = {0};
    ligi_group_message_put(&change,
                           &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_CHANGE, .number = 1});
    put_entries(&change, 1);
    ligi_group_message_put(
        &roster, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_ROSTER, .entry_count = 1});
    put_entries(&roster, 1);
    ligi_group_message_put(
        &fail,
        &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_FAIL, .status = LIG_E_PEER, .text = "x"});
    ligi_group_message_put(&join, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_JOIN});
    ligi_group_message_put_join(&join, &(ligi_join){.host = "h"});
    refuse_byte(&change, 0, 2, LIG_E_UNSUPPORTED);
    refuse_byte(&change, 1, 99, LIG_E_CORRUPT);
    refuse_byte(&change, 10, LIGI_ROLES, LIG_E_CORRUPT);
    refuse_byte(&change, 15, LIGI_LEFT + 1, LIG_E_CORRUPT);
    refuse_byte(&roster, 10 + 8, LIGI_ROLES, LIG_E_CORRUPT);
    refuse_byte(&roster, 10 + 18, 255, LIG_E_CORRUPT); /* the count of entries */
    refuse_byte(&roster, 10 + 21, 255, LIG_E_CORRUPT);
    refuse_byte(&fail, 10, LIG_OK, LIG_E_CORRUPT);
    refuse_byte(&fail, 10, LIG_E_INTERNAL + 1, LIG_E_CORRUPT);
    refuse_byte(&join, 2, LIGI_ROLES, LIG_E_CORRUPT);
    ligi_writer_fini(&change);
    ligi_writer_fini(&roster);
    ligi_writer_fini(&fail);
    ligi_writer_fini(&join);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_messages),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_roster),
        cmocka_unit_test(test_wrong_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
