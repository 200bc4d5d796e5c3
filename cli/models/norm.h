/* How far two tensors of one dtype and shape are apart. */
#ifndef CLI_NORM_H
#define CLI_NORM_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_norm { /* sums of squares; starts as zeros */
    double before, difference;
} cli_norm;

/* Adds `bytes` bytes of elements of `dtype` in row-major order. An element is read as a number:
 * bool as 0 or 1, both parts of a complex number, both values of a packed byte. */
void cli_norm_add(cli_norm *norm, uint32_t dtype, const void *before, const void *after,
                  size_t bytes);

/* |after - before| / |before|, Euclidean; infinite if `before` is all zeros. */
double cli_norm_relative(const cli_norm *norm);

#endif
