/* A chi-square test of counts. */
#ifndef LIGI_DRAW_TESTING_H
#define LIGI_DRAW_TESTING_H

#include "base/test.h"

#include <math.h>

/* Fails when a chi-square of `counts` against `expected` (both sum up to the same) would be
 * exceeded by chance once in about 30,000 times. Seeds are fixed, so it either always fails or
 * never. An item that is expected 0 times must not occur. */
static inline void assert_close(const uint64_t *counts, const double *expected, size_t count)
{
    double sum = 0;
    size_t cells = 0;
    for (size_t i = 0; i < count; i++) {
        if (expected[i] == 0)
            assert_int_equal(counts[i], 0);
        if (expected[i] == 0)
            continue;
        double off = (double)counts[i] - expected[i];
        sum += off * off / expected[i];
        cells++;
    }
    double freedom = (double)cells - 1;
    double most = freedom + 4 * sqrt(2 * freedom) + 8;
    if (sum > most)
        fail_msg("chi-square %g of %g degrees of freedom; at most %g", sum, freedom, most);
}

#endif
