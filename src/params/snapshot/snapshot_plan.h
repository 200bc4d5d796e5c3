/* How tables are laid out as tensors of a model, and in which pieces they are written and read.
 * Pure. The same on every node and for any number of nodes, so that unchanged data is recognised.
 *
 *   column  one tensor of the model: "user" [keys, length], "user.sum", "user.lengths",
 *           "user.keys", ...
 *   unit    some rows of a table, one box of each of its columns; about 4 MiB. Dense keys: a range
 *           of them. Hashed: those whose hashes have the same leading bits, by key. */
#ifndef LIGI_SNAPSHOT_PLAN_H
#define LIGI_SNAPSHOT_PLAN_H

#include "params/tables/table.h"

#define LIGI_UNIT_BYTES (UINT64_C(4) << 20)
#define LIGI_UNIT_ROWS_MAX (UINT64_C(1) << 18)
#define LIGI_COLUMNS_MAX 4 /* per table, and one more for lengths or keys */

typedef enum ligi_snapshot_column_kind {
    LIGI_COLUMN_VALUES = 0,
    LIGI_COLUMN_STATE = 1,
    LIGI_COLUMN_LENGTHS = 2, /* int64 */
    LIGI_COLUMN_KEYS = 3     /* int64, minus the table's offset */
} ligi_snapshot_column_kind;

typedef struct ligi_snapshot_column {
    char *name;
    uint32_t table;
    uint32_t kind;
    uint32_t dtype, element_bytes;
    uint32_t lengths_before; /* STATE: offset in the row, in multiples of its length */
    int single;              /* one element per row; otherwise as many as the row has */
} ligi_snapshot_column;

typedef struct ligi_snapshot_table {
    uint32_t first_column, column_count;
    uint32_t length;     /* 0: unequal */
    size_t body_bytes;   /* 0: unequal */
    uint64_t first_unit; /* its number among the units of all tables */
    uint64_t unit_count;
    uint32_t hash_bits; /* hashed: leading bits of a key's hash that give its unit */
    uint64_t *rows;     /* [unit_count + 1]: rows before the unit; hashed: set by counting */
    uint64_t *elements; /* [unit_count + 1]: values before the unit; NULL unless unequal */
} ligi_snapshot_table;

typedef struct ligi_snapshot_plan {
    const ligi_tables *tables;
    ligi_snapshot_table table[LIG_PARAMS_TABLES_MAX];
    ligi_snapshot_column column[LIG_PARAMS_TABLES_MAX * (LIGI_COLUMNS_MAX + 1)];
    uint32_t column_count;
    uint64_t unit_count;
} ligi_snapshot_plan;

/* Fills a zeroed plan; call fini also after a failure. LIG_E_UNSUPPORTED if two tensors would have
 * the same name. */
lig_status ligi_params_snapshot_plan_init(ligi_snapshot_plan *plan, const ligi_tables *tables);
void ligi_params_snapshot_plan_fini(ligi_snapshot_plan *plan);

/* Hashed: `counts` of all units determine the rows before each. */
void ligi_params_snapshot_plan_count(ligi_snapshot_plan *plan, const uint64_t *counts);
/* Hashed, for loading: the number of rows of a table, split into units of equal size. Renumbers the
 * units of all tables. */
lig_status ligi_params_snapshot_plan_divide(ligi_snapshot_plan *plan, const uint64_t *row_counts);

/* The units that a node processes: [first, end). */
void ligi_params_snapshot_plan_share(const ligi_snapshot_plan *plan, uint32_t rank,
                                     uint32_t node_count, uint64_t *first, uint64_t *end);
/* The table of a unit, and its number there; -1 if there is no such unit. */
int ligi_params_snapshot_plan_unit(const ligi_snapshot_plan *plan, uint64_t unit, uint64_t *number);
/* The unit of a hashed key, in its table. */
uint64_t ligi_params_snapshot_plan_bucket(const ligi_snapshot_plan *plan, uint32_t table,
                                          int64_t key);

uint64_t ligi_params_snapshot_row_count(const ligi_snapshot_table *table);
/* Bytes of a row with `length` elements, and the offset of a column in it. */
size_t ligi_params_snapshot_body(const ligi_snapshot_plan *plan, uint32_t table, uint32_t length);
size_t ligi_params_snapshot_column_at(const ligi_snapshot_plan *plan,
                                      const ligi_snapshot_column *column, uint32_t length);
size_t ligi_params_snapshot_column_bytes(const ligi_snapshot_column *column, uint32_t length);

/* The whole tensor: fills shape[2], returns the number of dimensions. */
uint32_t ligi_params_snapshot_column_shape(const ligi_snapshot_plan *plan,
                                           const ligi_snapshot_column *column, int64_t *shape);
/* The box of a unit's rows in it: fills start[2] and shape[2]. */
void ligi_params_snapshot_column_box(const ligi_snapshot_plan *plan,
                                     const ligi_snapshot_column *column, uint64_t number,
                                     int64_t *start, int64_t *shape);

#endif
