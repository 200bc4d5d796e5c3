#include "params/sampling/alias_table.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

static lig_status check(const double *weights, uint32_t count, double *largest, uint32_t *positive)
{
    if (count == 0)
        return lig_fail(LIG_E_INVALID, "a distribution needs at least one weight");
    *largest = 0;
    *positive = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return lig_fail(LIG_E_INVALID,
                            "weight %u is %g; weights must be finite and not negative", i,
                            weights[i]);
        *positive += weights[i] > 0;
        *largest = weights[i] > *largest ? weights[i] : *largest;
    }
    if (*positive == 0)
        return lig_fail(LIG_E_INVALID, "all %u weights are 0; at least one must be greater", count);
    return LIG_OK;
}

/* Pairs cells below the average with cells above it. Both lists share one array, from its two ends.
 * A remainder left by rounding stays with its cell, except that a cell of weight 0 gets the
 * heaviest. */
static void pair(ligi_alias_table *alias, double *scaled, uint32_t *list, uint32_t heaviest)
{
    uint32_t count = alias->count, small = 0, large = count;
    for (uint32_t i = 0; i < count; i++)
        list[scaled[i] < 1 ? small++ : --large] = i;
    while (small > 0 && large < count) {
        uint32_t poor = list[--small], rich = list[large];
        alias->cells[poor] = (ligi_alias_table_cell){(float)scaled[poor], rich};
        scaled[rich] -= 1 - scaled[poor];
        if (scaled[rich] < 1) {
            large++;
            list[small++] = rich;
        }
    }
    while (large < count) {
        uint32_t i = list[large++];
        alias->cells[i] = (ligi_alias_table_cell){2, i};
    }
    while (small > 0) {
        uint32_t i = list[--small];
        alias->cells[i] = (ligi_alias_table_cell){scaled[i] > 0 ? 2 : 0, heaviest};
    }
}

lig_status ligi_params_alias_table_init(ligi_alias_table *alias, const double *weights,
                                        uint32_t count)
{
    double largest = 0, sum = 0, *scaled = NULL;
    uint32_t positive = 0, heaviest = 0, *list = NULL;
    ligi_alias_table_cell *cells = NULL;
    LIG_TRY(check(weights, count, &largest, &positive));
    lig_status status = ligi_calloc(&cells, count, sizeof *cells, "an alias table");
    if (status == LIG_OK)
        status = ligi_calloc(&scaled, count, sizeof *scaled, "an alias table");
    if (status == LIG_OK)
        status = ligi_calloc(&list, count, sizeof *list, "an alias table");
    if (status != LIG_OK)
        goto free_all;
    /* Divided by the largest first: the sum of finite weights may be infinite. */
    for (uint32_t i = 0; i < count; i++) {
        scaled[i] = weights[i] / largest;
        sum += scaled[i];
        heaviest = scaled[i] > scaled[heaviest] ? i : heaviest;
    }
    for (uint32_t i = 0; i < count; i++)
        scaled[i] *= count / sum;
    *alias = (ligi_alias_table){cells, count, positive};
    pair(alias, scaled, list, heaviest);
    cells = NULL;
free_all:
    free(cells);
    free(scaled);
    free(list);
    return status;
}

void ligi_params_alias_table_fini(ligi_alias_table *alias)
{
    free(alias->cells);
    *alias = (ligi_alias_table){0};
}
