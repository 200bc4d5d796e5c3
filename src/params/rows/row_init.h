/* First values of rows: a function of seed, table, key and element, and of nothing else. */
#ifndef LIGI_ROW_INIT_H
#define LIGI_ROW_INIT_H

#include <ligament/params.h>

/* Names the table. */
lig_status ligi_init_check(const lig_params_init *init, uint32_t dtype, const char *table);

typedef struct ligi_init_row {
    const lig_params_init *init;
    uint32_t dtype;
    uint32_t table;
    uint64_t key; /* within its table */
    uint32_t length;
} ligi_init_row;

/* Fills `length` elements. */
void ligi_init_fill(const ligi_init_row *row, void *values);
/* 1 when all rows are zeros. */
int ligi_init_zero(const lig_params_init *init);

#endif
