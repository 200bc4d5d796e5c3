/* Initial values of rows: a function of only seed, table, key and element. */
#ifndef LIGI_ROW_INIT_H
#define LIGI_ROW_INIT_H

#include <ligament/params.h>

/* Errors name the table. */
lig_status ligi_row_init_check(const lig_params_init *init, uint32_t dtype, const char *table);

typedef struct ligi_row_init {
    const lig_params_init *init;
    uint32_t dtype;
    uint32_t table;
    uint64_t key; /* within its table */
    uint32_t length;
} ligi_row_init;

/* Fills `length` elements. */
void ligi_row_init_fill(const ligi_row_init *row, void *values);
/* 1 if all rows are zeros. */
int ligi_row_init_zero(const lig_params_init *init);

#endif
