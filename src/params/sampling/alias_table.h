/* An alias table: draws from any weights in constant time. Pure. */
#ifndef LIGI_ALIAS_TABLE_H
#define LIGI_ALIAS_TABLE_H

#include <ligament/base.h>

typedef struct ligi_alias_table_cell {
    float keep; /* probability of the cell itself, otherwise `other` */
    uint32_t other;
} ligi_alias_table_cell;

typedef struct ligi_alias_table {
    ligi_alias_table_cell *cells;
    uint32_t count;
    uint32_t positive_count; /* with a weight above 0 */
} ligi_alias_table;

/* Fills a zeroed table. LIG_E_INVALID names the first weight that is negative or not finite, or
 * says that all are 0. */
lig_status ligi_params_alias_table_init(ligi_alias_table *alias, const double *weights,
                                        uint32_t count);
void ligi_params_alias_table_fini(ligi_alias_table *alias);

/* `bits` are 64 random bits; returns 0 .. count - 1. The upper bits choose the cell, the remainder
 * chooses within it. */
static inline uint32_t ligi_params_alias_table_draw(const ligi_alias_table *alias, uint64_t bits)
{
    unsigned __int128 wide = (unsigned __int128)bits * alias->count;
    uint32_t at = (uint32_t)(wide >> 64);
    const ligi_alias_table_cell *cell = &alias->cells[at];
    float unit = (float)((uint64_t)wide >> 40) * 0x1p-24f;
    return unit < cell->keep ? at : cell->other;
}

#endif
