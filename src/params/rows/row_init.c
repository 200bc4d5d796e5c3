#include "params/rows/row_init.h"

#include <float.h>
#include <math.h>

static int integral(uint32_t dtype)
{
    return dtype == LIG_INT32 || dtype == LIG_INT64;
}

/* The largest finite value of the type: draws are clamped to it. */
static double highest(uint32_t dtype)
{
    switch (dtype) {
    case LIG_INT32: return (double)INT32_MAX;
    case LIG_INT64: return 9007199254740992.0; /* 2^53 */
    case LIG_FLOAT64: return DBL_MAX / 4;
    default: return 3.3e38;
    }
}

static int fits(double value, uint32_t kind, uint32_t dtype)
{
    if (!(fabs(value) <= highest(dtype)))
        return 0;
    return !integral(dtype) || kind == LIG_PARAMS_NORMAL || value == floor(value);
}

lig_status ligi_row_init_check(const lig_params_init *init, uint32_t dtype, const char *table)
{
    if (init->kind > LIG_PARAMS_NORMAL)
        return lig_fail(LIG_E_INVALID, "table '%s': unknown initialiser %u", table, init->kind);
    if (init->kind != LIG_PARAMS_ZERO && !fits(init->a, init->kind, dtype))
        return lig_fail(LIG_E_INVALID, "table '%s': the initialiser's a, %g, does not fit in %s",
                        table, init->a, lig_dtype_name(dtype));
    if (init->kind >= LIG_PARAMS_UNIFORM && !fits(init->b, init->kind, dtype))
        return lig_fail(LIG_E_INVALID, "table '%s': the initialiser's b, %g, does not fit in %s",
                        table, init->b, lig_dtype_name(dtype));
    if (init->kind == LIG_PARAMS_UNIFORM && !(init->a < init->b))
        return lig_fail(LIG_E_INVALID, "table '%s': uniform needs a < b, not %g and %g", table,
                        init->a, init->b);
    if (init->kind == LIG_PARAMS_NORMAL && init->b < 0)
        return lig_fail(LIG_E_INVALID, "table '%s': the standard deviation, %g, is negative", table,
                        init->b);
    return LIG_OK;
}

int ligi_row_init_zero(const lig_params_init *init)
{
    return init->kind == LIG_PARAMS_ZERO || (init->kind == LIG_PARAMS_CONSTANT && init->a == 0);
}

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The finaliser of splitmix64; a counter through it passes the usual statistical tests. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* [0, 1), 53 bits. */
static double fraction(uint64_t stream, uint64_t number)
{
    return (double)(mix(stream + (number + 1) * GOLDEN) >> 11) * 0x1p-53;
}

enum { PIECE = 64 }; /* elements drawn at once; even */

/* Two elements share a pair of draws. */
static void draw_normal(const ligi_row_init *row, uint64_t stream, uint32_t first, double *out)
{
    const lig_params_init *init = row->init;

    for (uint32_t i = 0; i < PIECE && first + i < row->length; i += 2) {
        double radius = init->b * sqrt(-2 * log(1 - fraction(stream, first + i)));
        double angle = 6.283185307179586 * fraction(stream, (uint64_t)first + i + 1);
        out[i] = init->a + radius * cos(angle);
        out[i + 1] = init->a + radius * sin(angle);
    }
}

/* Elements from `first` on, up to the batch size or the end. */
static void draw(const ligi_row_init *row, uint64_t stream, uint32_t first, double *out)
{
    const lig_params_init *init = row->init;
    double a = init->kind == LIG_PARAMS_ZERO ? 0 : init->a, width = init->b - init->a;

    if (init->kind == LIG_PARAMS_NORMAL) {
        draw_normal(row, stream, first, out);
    } else if (init->kind == LIG_PARAMS_UNIFORM) {
        for (uint32_t i = 0; i < PIECE; i++)
            out[i] = a + width * fraction(stream, (uint64_t)first + i);
    } else {
        for (uint32_t i = 0; i < PIECE; i++)
            out[i] = a;
    }
}

static uint16_t to_half(float value)
{
    union {
        float value;
        uint32_t bits;
    } both = {value};

    return (uint16_t)((both.bits + 0x7fffu + (both.bits >> 16 & 1)) >> 16);
}

static float from_half(uint16_t half)
{
    union {
        uint32_t bits;
        float value;
    } both = {(uint32_t)half << 16};

    return both.value;
}

/* Rounding may give b, which is excluded: use the next smaller number. */
static int reaches(double value, const lig_params_init *init)
{
    return init->kind == LIG_PARAMS_UNIFORM && value >= init->b;
}

static uint16_t half_below(float value, const lig_params_init *init)
{
    uint16_t half = to_half(value);

    if (!reaches((double)from_half(half), init))
        return half;
    if ((half & 0x7fffu) == 0)
        return 0x8080u;
    return (uint16_t)(half & 0x8000u ? half + 1 : half - 1);
}

static float float_below(float value, const lig_params_init *init)
{
    return reaches((double)value, init) ? nextafterf(value, -INFINITY) : value;
}

static double double_below(double value, const lig_params_init *init)
{
    return reaches(value, init) ? nextafter(value, -INFINITY) : value;
}

static int64_t whole(double value, uint32_t kind, uint32_t dtype)
{
    double near = kind == LIG_PARAMS_UNIFORM ? floor(value) : nearbyint(value);

    return (int64_t)fmin(fmax(near, -highest(dtype)), highest(dtype));
}

static void convert(const ligi_row_init *row, const double *from, uint32_t count, uint32_t first,
                    void *values)
{
    const lig_params_init *init = row->init;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = first + i;
        switch (row->dtype) {
        case LIG_FLOAT32: ((float *)values)[at] = float_below((float)from[i], init); break;
        case LIG_FLOAT64: ((double *)values)[at] = double_below(from[i], init); break;
        case LIG_BFLOAT16: ((uint16_t *)values)[at] = half_below((float)from[i], init); break;
        case LIG_INT32:
            ((int32_t *)values)[at] = (int32_t)whole(from[i], init->kind, LIG_INT32);
            break;
        default: ((int64_t *)values)[at] = whole(from[i], init->kind, LIG_INT64); break;
        }
    }
}

void ligi_row_init_fill(const ligi_row_init *row, void *values)
{
    uint64_t stream =
        mix(mix(row->init->seed + GOLDEN * (row->table + 1)) ^ mix(row->key + GOLDEN));
    double piece[PIECE];

    for (uint32_t at = 0; at < row->length; at += PIECE) {
        uint32_t count = row->length - at < PIECE ? row->length - at : PIECE;
        draw(row, stream, at, piece);
        convert(row, piece, count, at, values);
    }
}
