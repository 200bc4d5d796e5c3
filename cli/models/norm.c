#include "models/norm.h"

#include <ligament/tensor.h>
#include <math.h>
#include <string.h>

/* A float of 16 bits or fewer: sign, `exponent` bits with `bias`, `fraction` bits. */
typedef struct small_float {
    int exponent, fraction, bias;
    enum {
        IEEE,     /* the largest exponent is infinity or NaN */
        FINITE,   /* no infinities; all ones is NaN */
        UNSIGNED, /* no infinities and no negative zero, whose place is NaN's */
        NUMBERS   /* every pattern is a number */
    } special;
} small_float;

static const small_float *small_float_of(uint32_t dtype)
{
    static const small_float formats[LIG_DTYPE_COUNT] = {
        [LIG_FLOAT16] = {5, 10, 15, IEEE},
        [LIG_COMPLEX32] = {5, 10, 15, IEEE},
        [LIG_BFLOAT16] = {8, 7, 127, IEEE},
        [LIG_FLOAT8_E4M3FN] = {4, 3, 7, FINITE},
        [LIG_FLOAT8_E5M2] = {5, 2, 15, IEEE},
        [LIG_FLOAT8_E4M3FNUZ] = {4, 3, 8, UNSIGNED},
        [LIG_FLOAT8_E5M2FNUZ] = {5, 2, 16, UNSIGNED},
        [LIG_FLOAT8_E4M3] = {4, 3, 7, IEEE},
        [LIG_FLOAT8_E3M4] = {3, 4, 3, IEEE},
        [LIG_FLOAT8_E4M3B11FNUZ] = {4, 3, 11, UNSIGNED},
        [LIG_FLOAT6_E2M3FN] = {2, 3, 1, NUMBERS},
        [LIG_FLOAT6_E3M2FN] = {3, 2, 3, NUMBERS},
        [LIG_FLOAT4_E2M1FN] = {2, 1, 1, NUMBERS},
        [LIG_FLOAT4_E2M1FN_X2] = {2, 1, 1, NUMBERS},
    };
    return dtype < LIG_DTYPE_COUNT && formats[dtype].exponent > 0 ? &formats[dtype] : NULL;
}

static double decode(const small_float *format, uint32_t bits)
{
    uint32_t exponents = 1u << format->exponent, fractions = 1u << format->fraction;
    uint32_t fraction = bits & (fractions - 1),
             exponent = bits >> format->fraction & (exponents - 1);
    int negative = (int)(bits >> (format->exponent + format->fraction) & 1);
    int all_ones = exponent == exponents - 1 && fraction == fractions - 1;
    if (format->special == IEEE && exponent == exponents - 1)
        return fraction != 0 ? NAN : negative ? -INFINITY : INFINITY;
    if ((format->special == FINITE && all_ones) ||
        (format->special == UNSIGNED && negative && exponent == 0 && fraction == 0))
        return NAN;
    double value = exponent == 0 ? ldexp((double)fraction, 1 - format->bias - format->fraction)
                                 : ldexp((double)(fraction + fractions),
                                         (int)exponent - format->bias - format->fraction);
    return negative ? -value : value;
}

/* Sign-extends the low `bits` bits. */
static double small_int(uint8_t byte, int bits)
{
    int value = byte & ((1 << bits) - 1);
    return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
}

static uint32_t part_bytes(uint32_t dtype)
{
    int complex = dtype == LIG_COMPLEX32 || dtype == LIG_COMPLEX64 || dtype == LIG_COMPLEX128;
    return lig_dtype_bytes(dtype) / (complex ? 2 : 1);
}

#define READ(type)                                                                                 \
    do {                                                                                           \
        type value;                                                                                \
        memcpy(&value, at, sizeof value);                                                          \
        return (double)value;                                                                      \
    } while (0)

static double read_number(uint32_t dtype, const uint8_t *at)
{
    switch (dtype) {
    case LIG_BOOL: return *at != 0;
    case LIG_INT8: READ(int8_t);
    case LIG_INT16: READ(int16_t);
    case LIG_INT32: READ(int32_t);
    case LIG_INT64: READ(int64_t);
    case LIG_UINT16: READ(uint16_t);
    case LIG_UINT32: READ(uint32_t);
    case LIG_UINT64: READ(uint64_t);
    case LIG_FLOAT32:
    case LIG_COMPLEX64: READ(float);
    case LIG_FLOAT64:
    case LIG_COMPLEX128: READ(double);
    case LIG_FLOAT8_E8M0FNU: return *at == 0xFF ? NAN : ldexp(1, *at - 127);
    case LIG_INT4: return small_int(*at, 4);
    case LIG_INT2: return small_int(*at, 2);
    case LIG_UINT4: return *at & 15;
    case LIG_UINT2: return *at & 3;
    default: return *at;
    }
}

static void add(cli_norm *norm, double before, double after)
{
    norm->before += before * before;
    norm->difference += (after - before) * (after - before);
}

static void add_small(cli_norm *norm, const small_float *format, uint32_t width,
                      const uint8_t *before, const uint8_t *after)
{
    uint32_t a = before[0], b = after[0];
    if (width == 2) {
        a |= (uint32_t)before[1] << 8;
        b |= (uint32_t)after[1] << 8;
    }
    add(norm, decode(format, a), decode(format, b));
}

void cli_norm_add(cli_norm *norm, uint32_t dtype, const void *before, const void *after,
                  size_t bytes)
{
    const small_float *format = small_float_of(dtype);
    const uint8_t *a = before, *b = after;
    uint32_t width = part_bytes(dtype);
    if (width == 0)
        return;
    for (size_t i = 0; i + width <= bytes; i += width) {
        if (format == NULL)
            add(norm, read_number(dtype, a + i), read_number(dtype, b + i));
        else
            add_small(norm, format, width, a + i, b + i);
        if (dtype == LIG_FLOAT4_E2M1FN_X2)
            add(norm, decode(format, a[i] >> 4), decode(format, b[i] >> 4));
    }
}

double cli_norm_relative(const cli_norm *norm)
{
    if (norm->difference == 0)
        return 0;
    return sqrt(norm->difference) / sqrt(norm->before);
}
