/* The body of each row_*.c; LIGI_ROW_NAME and LIGI_ROW_KIND are defined by the includer. */
#include "params/rows/table_state.h"

#include <math.h>
#include <string.h>

/* Squares summed in the row's type: a longer float sum would lose its small terms. */
#define LIGI_ROW_SUMMED 65536u

/* Callers' values may be unaligned. */
typedef float loose_f32 __attribute__((aligned(1)));
typedef double loose_f64 __attribute__((aligned(1)));
typedef uint16_t loose_u16 __attribute__((aligned(1)));
typedef uint32_t loose_u32 __attribute__((aligned(1)));
typedef uint64_t loose_u64 __attribute__((aligned(1)));

#if LIGI_ROW_ATOMIC

static void copy_out(void *to, const void *row, size_t bytes)
{
    size_t at = 0;

    for (; at + 4 <= bytes; at += 4) {
        uint32_t word =
            __atomic_load_n((const uint32_t *)((const char *)row + at), __ATOMIC_RELAXED);
        memcpy((char *)to + at, &word, 4);
    }
    for (; at < bytes; at++)
        ((uint8_t *)to)[at] = __atomic_load_n((const uint8_t *)row + at, __ATOMIC_RELAXED);
}

static void copy_in(void *row, const void *from, size_t bytes)
{
    size_t at = 0;

    for (; at + 4 <= bytes; at += 4) {
        uint32_t word;
        memcpy(&word, (const char *)from + at, 4);
        __atomic_store_n((uint32_t *)((char *)row + at), word, __ATOMIC_RELAXED);
    }
    for (; at < bytes; at++)
        __atomic_store_n((uint8_t *)row + at, ((const uint8_t *)from)[at], __ATOMIC_RELAXED);
}

#define DEFINE_ACCESS(name, type)                                                                  \
    static inline type name##_get(const type *at)                                                  \
    {                                                                                              \
        type value;                                                                                \
        __atomic_load(at, &value, __ATOMIC_RELAXED);                                               \
        return value;                                                                              \
    }                                                                                              \
    static inline void name##_put(type *at, type value)                                            \
    {                                                                                              \
        __atomic_store(at, &value, __ATOMIC_RELAXED);                                              \
    }

#else

typedef uint8_t wide64 __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint8_t wide16 __attribute__((vector_size(16), aligned(1), may_alias));

static inline void copy_short(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes >= 16) {
        for (size_t at = 0; at + 16 < bytes; at += 16)
            *(wide16 *)(to + at) = *(const wide16 *)(from + at);
        *(wide16 *)(to + bytes - 16) = *(const wide16 *)(from + bytes - 16);
    } else if (bytes >= 8) {
        *(loose_u64 *)to = *(const loose_u64 *)from;
        *(loose_u64 *)(to + bytes - 8) = *(const loose_u64 *)(from + bytes - 8);
    } else {
        for (size_t at = 0; at < bytes; at++)
            to[at] = from[at];
    }
}

/* The last vector overlaps the one before it. */
static inline void copy_wide(void *to_, const void *from_, size_t bytes)
{
    uint8_t *to = to_;
    const uint8_t *from = from_;
    size_t at = 0;

    if (bytes < 64) {
        copy_short(to, from, bytes);
        return;
    }
    for (; at + 256 <= bytes; at += 256) {
        wide64 a = *(const wide64 *)(from + at), b = *(const wide64 *)(from + at + 64);
        wide64 c = *(const wide64 *)(from + at + 128), d = *(const wide64 *)(from + at + 192);
        *(wide64 *)(to + at) = a;
        *(wide64 *)(to + at + 64) = b;
        *(wide64 *)(to + at + 128) = c;
        *(wide64 *)(to + at + 192) = d;
    }
    for (; at + 64 < bytes; at += 64)
        *(wide64 *)(to + at) = *(const wide64 *)(from + at);
    *(wide64 *)(to + bytes - 64) = *(const wide64 *)(from + bytes - 64);
}

static void copy_out(void *to, const void *row, size_t bytes)
{
    copy_wide(to, row, bytes);
}

static void copy_in(void *row, const void *from, size_t bytes)
{
    copy_wide(row, from, bytes);
}

#define DEFINE_ACCESS(name, type)                                                                  \
    static inline type name##_get(const type *at)                                                  \
    {                                                                                              \
        return *at;                                                                                \
    }                                                                                              \
    static inline void name##_put(type *at, type value)                                            \
    {                                                                                              \
        *at = value;                                                                               \
    }

#endif

DEFINE_ACCESS(f32, float)
DEFINE_ACCESS(f64, double)
DEFINE_ACCESS(u16, uint16_t)
DEFINE_ACCESS(u32, uint32_t)
DEFINE_ACCESS(u64, uint64_t)

static inline float from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

static inline float bf16_get(const uint16_t *at)
{
    return from_bf16(u16_get(at));
}

static inline void bf16_put(uint16_t *at, float value)
{
    u16_put(at, to_bf16(value));
}

#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)

#define NAME(rule) PASTE(f32, rule)
#define T float
#define LOOSE loose_f32
#define A float
#define LOOSE_A loose_f32
#define GET(at) f32_get(at)
#define PUT(at, value) f32_put(at, value)
#define GIVEN(at) (*(at))
#define STATE_GET(at) f32_get(at)
#define STATE_PUT(at, value) f32_put(at, value)
#define ROOT(x) sqrtf(x)
#include "params/rows/row_optimizers.h"
#include "params/rows/row_sums.h"

#define NAME(rule) PASTE(bf16, rule)
#define T uint16_t
#define LOOSE loose_u16
#define GET(at) bf16_get(at)
#define PUT(at, value) bf16_put(at, value)
#define A float
#define LOOSE_A loose_f32
#define GIVEN(at) from_bf16(*(at))
#define STATE_GET(at) f32_get(at)
#define STATE_PUT(at, value) f32_put(at, value)
#define ROOT(x) sqrtf(x)
#include "params/rows/row_optimizers.h"
#include "params/rows/row_sums.h"

#define NAME(rule) PASTE(f64, rule)
#define T double
#define LOOSE loose_f64
#define A double
#define LOOSE_A loose_f64
#define GET(at) f64_get(at)
#define PUT(at, value) f64_put(at, value)
#define GIVEN(at) (*(at))
#define STATE_GET(at) f64_get(at)
#define STATE_PUT(at, value) f64_put(at, value)
#define ROOT(x) sqrt(x)
#include "params/rows/row_optimizers.h"
#include "params/rows/row_sums.h"

/* Integers wrap around. */
#define NAME(rule) PASTE(u32, rule)
#define T uint32_t
#define LOOSE loose_u32
#define A uint32_t
#define LOOSE_A loose_u32
#define GET(at) u32_get(at)
#define PUT(at, value) u32_put(at, value)
#define GIVEN(at) (*(at))
#define STATE_GET(at) u32_get(at)
#define STATE_PUT(at, value) u32_put(at, value)
#include "params/rows/row_sums.h"

#define NAME(rule) PASTE(u64, rule)
#define T uint64_t
#define LOOSE loose_u64
#define A uint64_t
#define LOOSE_A loose_u64
#define GET(at) u64_get(at)
#define PUT(at, value) u64_put(at, value)
#define GIVEN(at) (*(at))
#define STATE_GET(at) u64_get(at)
#define STATE_PUT(at, value) u64_put(at, value)
#include "params/rows/row_sums.h"

#include "params/rows/row_sweeps.h"

#define PARTS(type)                                                                                \
    .kind = LIGI_ROW_KIND, .copy_out = copy_out, .copy_in = copy_in, .merge = type##_merge,        \
    .gather = gather, .scatter = type##_scatter
#define FLOATS(type)                                                                               \
    {                                                                                              \
        PARTS(type), .push = {type##_add, type##_sgd, type##_adagrad, type##_rowwise, type##_adam} \
    }
#define INTEGERS(type)                                                                             \
    {                                                                                              \
        PARTS(type), .push = {type##_add}                                                          \
    }

const ligi_row_kernels LIGI_ROW_NAME[LIGI_ROW_TYPES] = {
    [LIGI_ROW_FLOAT32] = FLOATS(f32),   [LIGI_ROW_FLOAT64] = FLOATS(f64),
    [LIGI_ROW_BFLOAT16] = FLOATS(bf16), [LIGI_ROW_INT32] = INTEGERS(u32),
    [LIGI_ROW_INT64] = INTEGERS(u64),
};
