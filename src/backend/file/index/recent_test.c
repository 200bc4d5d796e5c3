#include "backend/file/index/recent.h"
#include "backend/file/log/log_numbers.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 12, RECORDS = 40, OPS_MAX = 5, RUNS = 200 };

/* What each key stands for after each record; 0: it was erased, -1: it was never touched. */
typedef struct slow_recent {
    int values[RECORDS + 1][KEYS];
    ligi_clog_position at[RECORDS + 1];
} slow_recent;

static uint64_t draw(uint64_t *random, uint64_t count)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (*random >> 11) % count;
}

/* Of different lengths, one the beginning of the other; ascending. */
static size_t key_of(int key, char text[8])
{
    return (size_t)snprintf(text, 8, key % 2 ? "k%ca" : "k%c", 'a' + key / 2);
}

static void add(slow_recent *slow, int number, ligi_recent **recent, uint64_t *random)
{
    char keys[OPS_MAX][8], values[OPS_MAX][16];
    lig_catalog_op ops[OPS_MAX];
    const lig_catalog_event event = {"saved", 5};
    size_t count = draw(random, OPS_MAX + 1);
    ligi_writer writer = {0};

    memcpy(slow->values[number], slow->values[number - 1], sizeof slow->values[number]);
    for (size_t i = 0; i < count; i++) {
        int key = (int)draw(random, KEYS), value = (int)draw(random, 9);
        size_t bytes = (size_t)snprintf(values[i], sizeof values[i], "%d", value);
        slow->values[number][key] = value;
        ops[i] = (lig_catalog_op){keys[i], key_of(key, keys[i]), value ? values[i] : NULL,
                                  value ? bytes : 0};
    }
    const lig_catalog_edit edit = {
        .ops = ops, .op_count = count, .events = &event, .event_count = 1};
    const ligi_clog_position *at = &slow->at[number - 1];
    ligi_clog_header header = {.version = at->version + 1, .previous = at->chain};
    assert_ok(ligi_clog_record_put(&writer, &edit, &header));
    assert_ok(ligi_recent_add(recent, writer.data, &header, at));
    ligi_writer_fini(&writer);
    slow->at[number] = *at;
    ligi_clog_step(&slow->at[number], &header);
    assert_int_equal((*recent)->at.version, slow->at[number].version);
    assert_int_equal((*recent)->at.offset, slow->at[number].offset);
}

/* `from`: records up to that one are in the index. */
static void compare(const slow_recent *slow, int from, int number, const ligi_recent *recent)
{
    int untouched[KEYS];
    char key[8], value[16];

    for (int i = 0; i < KEYS; i++)
        untouched[i] = slow->values[number][i] == slow->values[from][i];
    const ligi_recent_item *next = ligi_recent_seek(recent, "\0", 1);
    for (int i = 0; i < KEYS; i++) {
        size_t bytes = key_of(i, key);
        const ligi_recent_item *item = ligi_recent_get(recent, key, bytes);
        assert_true(item != NULL || untouched[i]);
        if (item == NULL)
            continue;
        assert_ptr_equal(item, ligi_recent_seek(recent, key, bytes));
        assert_ptr_equal(item, next++);
        snprintf(value, sizeof value, "%d", slow->values[number][i]);
        assert_int_equal(item->value == NULL, slow->values[number][i] == 0);
        assert_int_equal(item->value_bytes, item->value ? strlen(value) : 0);
        if (item->value != NULL)
            assert_memory_equal(item->value, value, item->value_bytes);
    }
    assert_null(ligi_recent_seek(recent, "l", 1));
}

static void equals_a_slow_one(void **state)
{
    uint64_t random = 88172645463325252u;

    (void)state;
    for (int run = 0; run < RUNS; run++) {
        static slow_recent slow;
        ligi_recent *recent, *held = NULL;
        int from = 0, held_at = 0, held_from = 0;

        memset(slow.values[0], -1, sizeof slow.values[0]);
        slow.at[0] = (ligi_clog_position){.version = 7, .chain = 99, .segment = 3, .offset = 64};
        assert_ok(ligi_recent_create(&slow.at[0], 1, &recent));
        for (int i = 1; i <= RECORDS; i++) {
            add(&slow, i, &recent, &random);
            if (draw(&random, 8) == 0) {
                ligi_recent_drop(held);
                held = ligi_recent_hold(recent);
                held_at = i;
                held_from = from;
            }
            if (draw(&random, 8) == 0) {
                from += (int)draw(&random, (uint64_t)(i - from) + 1);
                assert_true(ligi_recent_fits(recent, &slow.at[from]));
                assert_ok(ligi_recent_trim(&recent, &slow.at[from]));
                assert_int_equal(recent->record_count, i - from);
            }
            compare(&slow, from, i, recent);
            if (held != NULL)
                compare(&slow, held_from, held_at, held);
        }
        ligi_recent_drop(held);
        ligi_recent_drop(recent);
    }
}

static void an_index_of_another_history_does_not_fit(void **state)
{
    uint64_t random = 5;
    slow_recent slow;
    ligi_recent *recent;

    (void)state;
    memset(slow.values[0], -1, sizeof slow.values[0]);
    slow.at[0] = (ligi_clog_position){.version = 7, .chain = 99, .segment = 3, .offset = 64};
    assert_ok(ligi_recent_create(&slow.at[0], 1, &recent));
    for (int i = 1; i <= 3; i++)
        add(&slow, i, &recent, &random);
    for (int i = 0; i <= 3; i++) {
        ligi_clog_position other = slow.at[i];
        assert_true(ligi_recent_fits(recent, &other));
        other.chain++;
        assert_false(ligi_recent_fits(recent, &other));
    }
    ligi_clog_position before = {.version = 6, .chain = 99}, behind = slow.at[3];
    behind.version++;
    assert_false(ligi_recent_fits(recent, &before));
    assert_false(ligi_recent_fits(recent, &behind));
    assert_ok(ligi_recent_trim(&recent, &slow.at[1]));
    assert_false(ligi_recent_fits(recent, &slow.at[0]));
    ligi_recent_drop(recent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_slow_one),
        cmocka_unit_test(an_index_of_another_history_does_not_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
