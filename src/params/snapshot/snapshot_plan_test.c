#include "params/snapshot/snapshot_plan.h"

#include "base/test.h"
#include "params/rows/table_state.h"
#include "params/snapshot/snapshot_message.h"
#include "params/tables/table_info.h"

#include <stdlib.h>

enum { UNEQUAL = 3000 };

static uint32_t lengths[UNEQUAL];
static const lig_params_optimizer adam = {
    .kind = LIG_PARAMS_ADAM, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .99};

static ligi_tables *tables_of(uint32_t flags, uint32_t nodes)
{
    ligi_tables *tables = NULL;
    for (uint32_t i = 0; i < UNEQUAL; i++)
        lengths[i] = 1 + i * 7 % 900;
    const lig_params_table list[3] = {
        {.name = "a", .key_count = 50000, .length = 100},
        {.name = "b",
         .key_count = UNEQUAL,
         .length = flags ? 5 : 0,
         .lengths = flags ? NULL : lengths,
         .optimizer = adam},
        {.name = "c", .key_count = 1, .length = 1},
    };
    ligi_tables_options options = {.tables = list,
                                   .table_count = 3,
                                   .dtype = LIG_FLOAT32,
                                   .flags = flags,
                                   .node_count = nodes};
    assert_ok(ligi_tables_create(&tables, &options));
    return tables;
}

/* Units of a table follow each other without gaps and are not too large; the same holds for their
 * boxes. */
static void check_units(const ligi_snapshot_plan *plan)
{
    uint64_t unit = 0, number;
    for (uint32_t t = 0; t < 3; t++) {
        const ligi_snapshot_table *table = &plan->table[t];
        assert_int_equal(table->first_unit, unit);
        assert_int_equal(ligi_params_snapshot_row_count(table),
                         ligi_tables_key_count(plan->tables, t));
        for (uint32_t c = 0; c < table->column_count; c++) {
            const ligi_snapshot_column *column = &plan->column[table->first_column + c];
            int64_t whole[2], start[2], shape[2], at = 0;
            ligi_params_snapshot_column_shape(plan, column, whole);
            for (uint64_t i = 0; i < table->unit_count; i++, at += shape[0]) {
                ligi_params_snapshot_column_box(plan, column, i, start, shape);
                assert_int_equal(start[0], at);
                assert_true(shape[0] > 0);
            }
            assert_int_equal(at, whole[0]);
        }
        for (uint64_t i = 0; i < table->unit_count; i++, unit++) {
            uint64_t bytes = 0;
            assert_int_equal(ligi_params_snapshot_plan_unit(plan, unit, &number), t);
            assert_int_equal(number, i);
            for (uint64_t row = table->rows[i]; row < table->rows[i + 1]; row++) {
                int64_t key = ligi_tables_offset(plan->tables, t) + (int64_t)row;
                bytes += ligi_params_snapshot_body(plan, t,
                                                   ligi_tables_length_of_key(plan->tables, key));
            }
            assert_true(bytes <= LIGI_UNIT_BYTES);
        }
    }
    assert_int_equal(unit, plan->unit_count);
    assert_int_equal(ligi_params_snapshot_plan_unit(plan, unit, &number), -1);
}

static void test_dense(void **state)
{
    (void)state;
    const char *names[] = {"a", "b", "b.mean", "b.square", "b.step", "b.lengths", "c"};
    ligi_tables *tables = tables_of(0, 1);
    ligi_snapshot_plan *plan = calloc(1, sizeof *plan);
    int64_t shape[2];
    assert_ok(ligi_params_snapshot_plan_init(plan, tables));
    assert_int_equal(plan->column_count, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_string_equal(plan->column[i].name, names[i]);
    assert_int_equal(ligi_params_snapshot_column_shape(plan, &plan->column[0], shape), 2);
    assert_int_equal(shape[1], 100);
    assert_int_equal(ligi_params_snapshot_column_shape(plan, &plan->column[2], shape), 1);
    assert_int_equal(ligi_params_snapshot_column_shape(plan, &plan->column[4], shape), 1);
    assert_int_equal(shape[0], UNEQUAL);
    assert_true(plan->table[0].unit_count > 4 && plan->table[1].unit_count > 1);
    check_units(plan);
    ligi_params_snapshot_plan_fini(plan);
    free(plan);
    ligi_tables_destroy(tables);
}

/* The body of a row has the layout of the tables. */
static void test_bodies(void **state)
{
    (void)state;
    ligi_tables *tables = tables_of(0, 1);
    ligi_snapshot_plan *plan = calloc(1, sizeof *plan);
    assert_ok(ligi_params_snapshot_plan_init(plan, tables));
    for (ligi_entry entry = 49990; entry < 50000 + UNEQUAL; entry++) {
        uint32_t table = ligi_tables_slab(tables, entry)->table;
        uint32_t length = ligi_tables_length(tables, entry);
        size_t bytes = ligi_tables_body_bytes(tables, entry);
        assert_int_equal(ligi_params_snapshot_body(plan, table, length), bytes);
        if (table == 0)
            continue;
        size_t at = ligi_tables_slab(tables, entry)->state_at;
        assert_int_equal(ligi_params_snapshot_column_at(plan, &plan->column[2], length), at);
        assert_int_equal(ligi_params_snapshot_column_at(plan, &plan->column[3], length),
                         at + length * 4);
        assert_int_equal(ligi_params_snapshot_column_at(plan, &plan->column[4], length),
                         at + length * 8);
        assert_int_equal(at + length * 8 + 4, bytes);
    }
    ligi_params_snapshot_plan_fini(plan);
    free(plan);
    ligi_tables_destroy(tables);
}

/* Every unit belongs to exactly one node, whatever the number of nodes. */
static void test_shares(void **state)
{
    (void)state;
    ligi_tables *tables = tables_of(0, 1);
    ligi_snapshot_plan *plan = calloc(1, sizeof *plan);
    assert_ok(ligi_params_snapshot_plan_init(plan, tables));
    for (uint32_t nodes = 1; nodes < 40; nodes++) {
        uint64_t at = 0, first, end;
        for (uint32_t rank = 0; rank < nodes; rank++, at = end) {
            ligi_params_snapshot_plan_share(plan, rank, nodes, &first, &end);
            assert_int_equal(first, at);
            assert_true(end >= first);
        }
        assert_int_equal(at, plan->unit_count);
    }
    ligi_params_snapshot_plan_fini(plan);
    free(plan);
    ligi_tables_destroy(tables);
}

static void test_hashed(void **state)
{
    (void)state;
    const char *names[] = {"a",      "a.keys", "b", "b.mean", "b.square",
                           "b.step", "b.keys", "c", "c.keys"};
    const uint64_t rows[3] = {50000, UNEQUAL, 1};
    ligi_tables *tables = tables_of(LIG_PARAMS_HASHED, 1);
    ligi_snapshot_plan *plan = calloc(1, sizeof *plan);
    assert_ok(ligi_params_snapshot_plan_init(plan, tables));
    assert_int_equal(plan->column_count, 9);
    for (uint32_t i = 0; i < 9; i++)
        assert_string_equal(plan->column[i].name, names[i]);
    uint64_t *counts = calloc(plan->unit_count, sizeof *counts);
    for (int64_t i = 0; i < 50000; i++)
        counts[ligi_params_snapshot_plan_bucket(plan, 0, i * 977)]++;
    for (uint64_t i = 0; i < plan->table[0].unit_count; i++)
        assert_true(counts[i] * 400 < LIGI_UNIT_BYTES && counts[i] > 500);
    ligi_params_snapshot_plan_count(plan, counts);
    assert_int_equal(ligi_params_snapshot_row_count(&plan->table[0]), 50000);
    assert_int_equal(ligi_params_snapshot_row_count(&plan->table[2]), 0);
    assert_ok(ligi_params_snapshot_plan_divide(plan, rows));
    check_units(plan);
    free(counts);
    ligi_params_snapshot_plan_fini(plan);
    free(plan);
    ligi_tables_destroy(tables);
}

/* --- messages --- */

static void test_notes(void **state)
{
    (void)state;
    uint8_t payload[200] = {0};
    ligi_snapshot_message content;
    ligi_snapshot_front front = {.count = 3, .total = 3};
    int64_t key = -77;
    memcpy(payload, &front, sizeof front);
    memcpy(payload + sizeof front + 16, &key, sizeof key);
    assert_ok(ligi_params_snapshot_message_open(LIGI_SNAPSHOT_REPORT, payload, sizeof front + 3,
                                                &content));
    assert_status(ligi_params_snapshot_message_open(LIGI_SNAPSHOT_REPORT, payload, sizeof front + 4,
                                                    &content),
                  LIG_E_CORRUPT);
    assert_status(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_GET, payload, sizeof front + 1, &content),
        LIG_E_CORRUPT);
    assert_ok(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_OWN, payload, sizeof front + 24, &content));
    assert_int_equal(ligi_params_snapshot_message_key(&content, 2), -77);
    assert_status(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_OWN, payload, sizeof front + 25, &content),
        LIG_E_CORRUPT);
    assert_ok(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_PUT, payload, sizeof front + 25, &content));
    assert_int_equal(content.body_bytes, 1);
    assert_status(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_PUT, payload, sizeof front + 23, &content),
        LIG_E_CORRUPT);
    assert_ok(ligi_params_snapshot_message_open(LIGI_SNAPSHOT_TAKEN, payload, sizeof front + 1,
                                                &content));
    assert_status(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_TAKEN, payload, sizeof front, &content),
        LIG_E_CORRUPT);
    assert_status(ligi_params_snapshot_message_open(9, payload, sizeof front, &content),
                  LIG_E_CORRUPT);
    assert_status(
        ligi_params_snapshot_message_open(LIGI_SNAPSHOT_GET, payload, sizeof front - 1, &content),
        LIG_E_CORRUPT);
    front.total = 2; /* a piece that reaches beyond the data */
    memcpy(payload, &front, sizeof front);
    assert_status(ligi_params_snapshot_message_open(LIGI_SNAPSHOT_DECISION, payload,
                                                    sizeof front + 3, &content),
                  LIG_E_CORRUPT);
    front = (ligi_snapshot_front){.count = UINT32_MAX};
    memcpy(payload, &front, sizeof front);
    for (uint8_t verb = LIGI_SNAPSHOT_ROWS; verb <= LIGI_SNAPSHOT_TAKEN; verb++)
        assert_status(ligi_params_snapshot_message_open(verb, payload, sizeof payload, &content),
                      LIG_E_CORRUPT);
}

static void test_long_rows(void **unused)
{
    (void)unused;
    const lig_params_table table = {
        .name = "a", .key_count = 3, .length = LIG_PARAMS_LENGTH_MAX, .optimizer = adam};
    ligi_tables_options options = {
        .tables = &table, .table_count = 1, .dtype = LIG_FLOAT64, .node_count = 1};
    ligi_tables *tables = NULL;
    ligi_snapshot_plan plan = {0};
    const size_t row = 8 * (size_t)LIG_PARAMS_LENGTH_MAX;
    int64_t start[2], shape[2];
    assert_ok(ligi_tables_create(&tables, &options));
    assert_ok(ligi_params_snapshot_plan_init(&plan, tables));
    assert_int_equal(plan.unit_count, 3);
    assert_int_equal(plan.table[0].body_bytes, 3 * row + 8);
    assert_int_equal(ligi_params_snapshot_column_at(&plan, &plan.column[2], LIG_PARAMS_LENGTH_MAX),
                     2 * row);
    assert_int_equal(ligi_params_snapshot_column_bytes(&plan.column[2], LIG_PARAMS_LENGTH_MAX),
                     row);
    ligi_params_snapshot_column_box(&plan, &plan.column[1], 2, start, shape);
    assert_true(start[0] == 2 && shape[0] == 1 && shape[1] == LIG_PARAMS_LENGTH_MAX);
    ligi_params_snapshot_plan_fini(&plan);
    ligi_tables_destroy(tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),  cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_shares), cmocka_unit_test(test_hashed),
        cmocka_unit_test(test_notes),  cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
