#include "params/snapshot/snapshot_plan.h"

#include "base/error.h"
#include "params/rows/key_index.h"
#include "params/rows/optimizer.h"
#include "params/tables/table_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_BYTES (UINT64_C(1) << 20) /* average, when a hashed table is full */

/* --- columns --- */

static lig_status add_column(ligi_snapshot_plan *plan, uint32_t table, const char *suffix,
                             ligi_snapshot_column column)
{
    const char *name = ligi_tables_name(plan->tables, table);
    size_t bytes = strlen(name) + strlen(suffix) + 2;
    LIG_TRY(ligi_alloc(&column.name, bytes, "a name"));
    snprintf(column.name, bytes, "%s%s%s", name, suffix[0] ? "." : "", suffix);
    column.table = table;
    column.element_bytes = lig_dtype_bytes(column.dtype);
    plan->column[plan->column_count++] = column;
    plan->table[table].column_count++;
    return LIG_OK;
}

static uint32_t state_dtype(const ligi_snapshot_plan *plan)
{
    uint32_t dtype = ligi_tables_dtype(plan->tables);
    return dtype == LIG_BFLOAT16 ? LIG_FLOAT32 : dtype;
}

static lig_status add_state(ligi_snapshot_plan *plan, uint32_t table)
{
    ligi_snapshot_column whole = {.kind = LIGI_COLUMN_STATE, .dtype = state_dtype(plan)};
    ligi_snapshot_column square = whole, single = whole;
    square.lengths_before = 1;
    single.single = 1;
    switch (ligi_tables_optimizer(plan->tables, table)->kind) {
    case LIG_PARAMS_ADAGRAD: return add_column(plan, table, "sum", whole);
    case LIG_PARAMS_ROWWISE_ADAGRAD: return add_column(plan, table, "sum", single);
    case LIG_PARAMS_ADAM:
        single.lengths_before = 2;
        LIG_TRY(add_column(plan, table, "mean", whole));
        LIG_TRY(add_column(plan, table, "square", square));
        return add_column(plan, table, "step", single);
    default: return LIG_OK;
    }
}

static lig_status add_columns(ligi_snapshot_plan *plan, uint32_t table)
{
    ligi_snapshot_column values = {.kind = LIGI_COLUMN_VALUES,
                                   .dtype = ligi_tables_dtype(plan->tables)};
    ligi_snapshot_column lengths = {.kind = LIGI_COLUMN_LENGTHS, .dtype = LIG_INT64, .single = 1};
    ligi_snapshot_column keys = {.kind = LIGI_COLUMN_KEYS, .dtype = LIG_INT64, .single = 1};
    plan->table[table].first_column = plan->column_count;
    LIG_TRY(add_column(plan, table, "", values));
    LIG_TRY(add_state(plan, table));
    if (ligi_tables_hashed(plan->tables))
        return add_column(plan, table, "keys", keys);
    if (plan->table[table].length == 0)
        return add_column(plan, table, "lengths", lengths);
    return LIG_OK;
}

static lig_status check_names(const ligi_snapshot_plan *plan)
{
    for (uint32_t i = 0; i < plan->column_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(plan->column[i].name, plan->column[j].name) == 0)
                return lig_fail(
                    LIG_E_UNSUPPORTED,
                    "tables '%s' and '%s' would both be saved as tensor '%s': rename one",
                    ligi_tables_name(plan->tables, plan->column[j].table),
                    ligi_tables_name(plan->tables, plan->column[i].table), plan->column[i].name);
    return LIG_OK;
}

/* --- sizes --- */

size_t ligi_params_snapshot_body(const ligi_snapshot_plan *plan, uint32_t table, uint32_t length)
{
    uint32_t kind = ligi_tables_optimizer(plan->tables, table)->kind;
    size_t values = (size_t)length * ligi_tables_element_bytes(plan->tables);
    size_t states = ligi_optimizer_state_count(kind, length);
    if (states == 0)
        return values;
    return (values + 7) / 8 * 8 + states * ligi_tables_state_element_bytes(plan->tables);
}

size_t ligi_params_snapshot_column_at(const ligi_snapshot_plan *plan,
                                      const ligi_snapshot_column *column, uint32_t length)
{
    if (column->kind != LIGI_COLUMN_STATE)
        return 0;
    size_t values = (size_t)length * ligi_tables_element_bytes(plan->tables);
    return (values + 7) / 8 * 8 + (size_t)column->lengths_before * length * column->element_bytes;
}

size_t ligi_params_snapshot_column_bytes(const ligi_snapshot_column *column, uint32_t length)
{
    return (column->single ? 1 : (size_t)length) * column->element_bytes;
}

uint64_t ligi_params_snapshot_row_count(const ligi_snapshot_table *table)
{
    return table->rows[table->unit_count];
}

/* --- units --- */

static uint64_t rows_of_unit(size_t body_bytes)
{
    uint64_t rows = LIGI_UNIT_BYTES / body_bytes;
    return rows > LIGI_UNIT_ROWS_MAX ? LIGI_UNIT_ROWS_MAX : rows < 1 ? 1 : rows;
}

/* The length of all rows of a table; 0: they differ. Keys are examined only if the tables as a
 * whole do not tell. */
static uint32_t length_of(const ligi_tables *tables, uint32_t table)
{
    int64_t first = ligi_tables_offset(tables, table);
    uint32_t length = ligi_tables_uniform(tables);
    if (length)
        return length;
    length = ligi_tables_length_of_key(tables, first);
    if (ligi_tables_hashed(tables))
        return length;
    for (uint64_t i = 1; i < ligi_tables_key_count(tables, table); i++)
        if (ligi_tables_length_of_key(tables, first + (int64_t)i) != length)
            return 0;
    return length;
}

static lig_status divide_equal(ligi_snapshot_table *self, uint64_t row_count)
{
    uint64_t step = rows_of_unit(self->body_bytes);
    free(self->rows);
    self->rows = NULL;
    self->unit_count = row_count ? (row_count + step - 1) / step : 1;
    LIG_TRY(ligi_calloc(&self->rows, self->unit_count + 1, sizeof *self->rows, "a save"));
    for (uint64_t i = 0; i <= self->unit_count; i++)
        self->rows[i] = i * step < row_count ? i * step : row_count;
    return LIG_OK;
}

static lig_status add_start(ligi_snapshot_table *self, size_t *capacities, uint64_t row,
                            uint64_t element)
{
    size_t at = self->unit_count++;
    LIG_TRY(ligi_grow(&self->rows, &capacities[0], at + 1, sizeof *self->rows, "a save"));
    LIG_TRY(ligi_grow(&self->elements, &capacities[1], at + 1, sizeof *self->elements, "a save"));
    self->rows[at] = row;
    self->elements[at] = element;
    return LIG_OK;
}

static lig_status divide_unequal(const ligi_snapshot_plan *plan, uint32_t table,
                                 ligi_snapshot_table *self)
{
    uint64_t keys = ligi_tables_key_count(plan->tables, table), elements = 0, bytes = 0, rows = 0;
    int64_t first = ligi_tables_offset(plan->tables, table);
    size_t capacities[2] = {0};
    LIG_TRY(add_start(self, capacities, 0, 0));
    for (uint64_t i = 0; i < keys; i++) {
        uint32_t length = ligi_tables_length_of_key(plan->tables, first + (int64_t)i);
        size_t body = ligi_params_snapshot_body(plan, table, length);
        if (rows && (bytes + body > LIGI_UNIT_BYTES || rows == LIGI_UNIT_ROWS_MAX)) {
            LIG_TRY(add_start(self, capacities, i, elements));
            bytes = rows = 0;
        }
        bytes += body;
        elements += length;
        rows++;
    }
    LIG_TRY(add_start(self, capacities, keys, elements));
    self->unit_count--;
    return LIG_OK;
}

static lig_status divide_hashed(const ligi_snapshot_plan *plan, uint32_t table,
                                ligi_snapshot_table *self)
{
    uint64_t keys = ligi_tables_key_count(plan->tables, table), bytes = keys * self->body_bytes;
    while (self->hash_bits < 40 && bytes >> self->hash_bits > BUCKET_BYTES)
        self->hash_bits++;
    self->unit_count = UINT64_C(1) << self->hash_bits;
    return ligi_calloc(&self->rows, self->unit_count + 1, sizeof *self->rows, "a save");
}

static void number_units(ligi_snapshot_plan *plan)
{
    plan->unit_count = 0;
    for (uint32_t i = 0; i < ligi_tables_count(plan->tables); i++) {
        plan->table[i].first_unit = plan->unit_count;
        plan->unit_count += plan->table[i].unit_count;
    }
}

lig_status ligi_params_snapshot_plan_init(ligi_snapshot_plan *plan, const ligi_tables *tables)
{
    plan->tables = tables;
    for (uint32_t i = 0; i < ligi_tables_count(tables); i++) {
        ligi_snapshot_table *table = &plan->table[i];
        table->length = length_of(tables, i);
        table->body_bytes = table->length ? ligi_params_snapshot_body(plan, i, table->length) : 0;
        LIG_TRY(add_columns(plan, i));
        if (ligi_tables_hashed(tables))
            LIG_TRY(divide_hashed(plan, i, table));
        else if (table->length)
            LIG_TRY(divide_equal(table, ligi_tables_key_count(tables, i)));
        else
            LIG_TRY(divide_unequal(plan, i, table));
    }
    number_units(plan);
    return check_names(plan);
}

void ligi_params_snapshot_plan_fini(ligi_snapshot_plan *plan)
{
    for (uint32_t i = 0; i < plan->column_count; i++)
        free(plan->column[i].name);
    for (uint32_t i = 0; i < LIG_PARAMS_TABLES_MAX; i++) {
        free(plan->table[i].rows);
        free(plan->table[i].elements);
    }
    *plan = (ligi_snapshot_plan){0};
}

void ligi_params_snapshot_plan_count(ligi_snapshot_plan *plan, const uint64_t *counts)
{
    for (uint32_t i = 0; i < ligi_tables_count(plan->tables); i++) {
        ligi_snapshot_table *table = &plan->table[i];
        for (uint64_t unit = 0; unit < table->unit_count; unit++)
            table->rows[unit + 1] = table->rows[unit] + counts[table->first_unit + unit];
    }
}

lig_status ligi_params_snapshot_plan_divide(ligi_snapshot_plan *plan, const uint64_t *row_counts)
{
    for (uint32_t i = 0; i < ligi_tables_count(plan->tables); i++)
        LIG_TRY(divide_equal(&plan->table[i], row_counts[i]));
    number_units(plan);
    return LIG_OK;
}

void ligi_params_snapshot_plan_share(const ligi_snapshot_plan *plan, uint32_t rank,
                                     uint32_t node_count, uint64_t *first, uint64_t *end)
{
    unsigned __int128 units = plan->unit_count;
    *first = (uint64_t)(units * rank / node_count);
    *end = (uint64_t)(units * (rank + 1) / node_count);
}

int ligi_params_snapshot_plan_unit(const ligi_snapshot_plan *plan, uint64_t unit, uint64_t *number)
{
    for (uint32_t i = 0; i < ligi_tables_count(plan->tables); i++)
        if (unit >= plan->table[i].first_unit &&
            unit - plan->table[i].first_unit < plan->table[i].unit_count) {
            *number = unit - plan->table[i].first_unit;
            return (int)i;
        }
    return -1;
}

uint64_t ligi_params_snapshot_plan_bucket(const ligi_snapshot_plan *plan, uint32_t table,
                                          int64_t key)
{
    uint32_t bits = plan->table[table].hash_bits;
    return bits ? ligi_key_index_hash(key) >> (64 - bits) : 0;
}

/* --- boxes --- */

uint32_t ligi_params_snapshot_column_shape(const ligi_snapshot_plan *plan,
                                           const ligi_snapshot_column *column, int64_t *shape)
{
    const ligi_snapshot_table *table = &plan->table[column->table];
    shape[0] = (int64_t)ligi_params_snapshot_row_count(table);
    if (column->single)
        return 1;
    if (table->elements) {
        shape[0] = (int64_t)table->elements[table->unit_count];
        return 1;
    }
    shape[1] = table->length;
    return 2;
}

void ligi_params_snapshot_column_box(const ligi_snapshot_plan *plan,
                                     const ligi_snapshot_column *column, uint64_t number,
                                     int64_t *start, int64_t *shape)
{
    const ligi_snapshot_table *table = &plan->table[column->table];
    const uint64_t *starts = table->elements && !column->single ? table->elements : table->rows;
    start[0] = (int64_t)starts[number];
    shape[0] = (int64_t)(starts[number + 1] - starts[number]);
    start[1] = 0;
    shape[1] = table->length;
}
