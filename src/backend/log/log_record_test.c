#include "backend/log/log_record.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

enum { OPS_COUNT = 5 };

static const uint8_t long_value[3000] = {1, 2, 3};
static const lig_catalog_op ops[OPS_COUNT] = {{"a", 1, "value", 5},
                                              {"gone", 4, NULL, 0},
                                              {"empty", 5, "", 0},
                                              {"longkey-longkey", 15, long_value, 3000},
                                              {"z", 1, "last", 4}};
static const lig_catalog_event events[2] = {{"saved", 5}, {"", 0}};

static ligi_clog_header make(ligi_writer *record)
{
    const lig_catalog_edit edit = {
        .ops = ops, .op_count = OPS_COUNT, .events = events, .event_count = 2};
    ligi_clog_header header = {.version = 7, .previous = 8, .synced = 6, .date_ns = -9};

    assert_ok(ligi_clog_record_put(record, &edit, &header));
    return header;
}

/* 1 when all items are as they were put. */
static int same_items(const uint8_t *record, size_t bytes)
{
    size_t at = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    for (size_t i = 0; i < 2; i++)
        if (!ligi_clog_item_next(record, bytes, &at, &item) || item.kind != LIGI_CLOG_EVENT ||
            item.value_bytes != events[i].bytes ||
            memcmp(item.value, events[i].data, item.value_bytes) != 0)
            return 0;
    for (size_t i = 0; i < OPS_COUNT; i++)
        if (!ligi_clog_item_next(record, bytes, &at, &item) ||
            item.kind != (ops[i].value ? LIGI_CLOG_PUT : LIGI_CLOG_ERASE) ||
            item.key_bytes != ops[i].key_bytes || item.value_bytes != ops[i].value_bytes ||
            memcmp(item.key, ops[i].key, item.key_bytes) != 0 ||
            (item.value_bytes && memcmp(record + item.at, ops[i].value, item.value_bytes) != 0))
            return 0;
    return !ligi_clog_item_next(record, bytes, &at, &item);
}

static void round_trip(void **state)
{
    (void)state;
    ligi_writer record = {0};
    ligi_clog_header made = make(&record), read;

    assert_int_equal(made.bytes, record.bytes);
    assert_int_equal(record.bytes % 8, 0);
    assert_true(ligi_clog_header_get(record.data, &read));
    assert_int_equal(read.bytes, made.bytes);
    assert_int_equal(read.sum, made.sum);
    assert_int_equal(read.check, made.check);
    assert_int_equal(read.items, OPS_COUNT + 2);
    assert_int_equal(read.version, 7);
    assert_int_equal(read.previous, 8);
    assert_int_equal(read.synced, 6);
    assert_int_equal(read.date_ns, -9);
    assert_true(ligi_clog_record_whole(record.data, &read));
    assert_true(same_items(record.data, record.bytes));
    ligi_writer_fini(&record);
}

static void records_without_items(void **state)
{
    (void)state;
    ligi_writer record = {0};
    ligi_clog_header header = {.version = 1}, read;

    assert_ok(ligi_clog_record_put(&record, &(lig_catalog_edit){0}, &header));
    assert_int_equal(record.bytes, LIGI_CLOG_HEADER_BYTES);
    assert_true(ligi_clog_header_get(record.data, &read));
    assert_true(ligi_clog_record_whole(record.data, &read));
    ligi_writer_fini(&record);
}

/* Zeros between items belong to none: a flipped bit there changes nothing. */
static void flipped_bits_are_noticed(void **state)
{
    (void)state;
    ligi_writer record = {0};
    ligi_clog_header header;
    size_t unnoticed = 0;

    make(&record);
    for (size_t bit = 0; bit < 8 * record.bytes; bit++) {
        record.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int whole = ligi_clog_header_get(record.data, &header) && header.bytes == record.bytes &&
                    ligi_clog_record_whole(record.data, &header);
        if (whole && !same_items(record.data, record.bytes))
            fail_msg("bit %zu was flipped, and the record counts as whole", bit);
        unnoticed += (size_t)whole;
        record.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_in_range(unnoticed, 0, (OPS_COUNT + 2) * 7 * 8);
    ligi_writer_fini(&record);
}

/* A record cut anywhere, or with another's items, is not whole. */
static void cut_and_mixed_records(void **state)
{
    (void)state;
    ligi_writer record = {0}, other = {0};
    ligi_clog_header header = make(&record), second = {.version = 8};
    const lig_catalog_edit edit = {.ops = ops, .op_count = 1};

    for (size_t bytes = LIGI_CLOG_HEADER_BYTES; bytes < record.bytes; bytes += 8) {
        uint8_t *copy = calloc(1, record.bytes);
        memcpy(copy, record.data, bytes);
        assert_false(ligi_clog_record_whole(copy, &header));
        free(copy);
    }
    assert_ok(ligi_clog_record_put(&other, &edit, &second));
    second.sum = header.sum;
    assert_false(ligi_clog_record_whole(other.data, &second));
    ligi_writer_fini(&record);
    ligi_writer_fini(&other);
}

/* One damaged item does not take the others with it. */
static void single_items_are_salvaged(void **state)
{
    (void)state;
    ligi_writer record = {0};
    ligi_clog_header header = make(&record);
    ligi_clog_item item;

    for (size_t damaged = 2; damaged < OPS_COUNT + 2; damaged++) {
        size_t at = LIGI_CLOG_HEADER_BYTES, found = 0, skipped = 0, start = 0;
        for (size_t i = 0; i <= damaged; i++) {
            start = at;
            assert_true(ligi_clog_item_next(record.data, header.bytes, &at, &item));
        }
        record.data[start + 16] ^= 1; /* of the key */
        for (at = LIGI_CLOG_HEADER_BYTES; at < header.bytes;) {
            if (ligi_clog_item_next(record.data, header.bytes, &at, &item))
                found++;
            else if (ligi_clog_item_skip(record.data, header.bytes, &at))
                skipped++;
            else
                break;
        }
        assert_int_equal(found, OPS_COUNT + 1);
        assert_int_equal(skipped, 1);
        assert_false(ligi_clog_record_whole(record.data, &header));
        record.data[start + 16] ^= 1;
    }
    ligi_writer_fini(&record);
}

/* The chain tells a record after another predecessor, and after another history. */
static void chains_differ(void **state)
{
    (void)state;
    ligi_writer record = {0};
    ligi_clog_header header = make(&record), other = header;
    uint8_t id[16] = {1}, next_id[16] = {2};

    other.previous++;
    assert_true(ligi_clog_chain(&header) != ligi_clog_chain(&other));
    other = header;
    other.check++;
    assert_true(ligi_clog_chain(&header) != ligi_clog_chain(&other));
    assert_true(ligi_clog_chain_start(id) != ligi_clog_chain_start(next_id));
    ligi_writer_fini(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(records_without_items),
        cmocka_unit_test(flipped_bits_are_noticed),
        cmocka_unit_test(cut_and_mixed_records),
        cmocka_unit_test(single_items_are_salvaged),
        cmocka_unit_test(chains_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
