/* Medians of measurements. */
#ifndef LIGI_BENCH_MEDIAN_H
#define LIGI_BENCH_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

static inline int median_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Sorts the values. */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, median_compare);
    return values[count / 2];
}

#endif
