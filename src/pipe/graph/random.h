/* A small seeded generator with the same numbers on every machine. */
#ifndef LIGI_RANDOM_H
#define LIGI_RANDOM_H

#include <stdint.h>

typedef struct ligi_random {
    uint64_t state;
} ligi_random;

/* splitmix64: any seed works, including zero. */
static inline uint64_t ligi_random_next(ligi_random *random)
{
    uint64_t z = (random->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 .. count - 1; count >= 1. */
static inline uint32_t ligi_random_below(ligi_random *random, uint32_t count)
{
    return (uint32_t)(((ligi_random_next(random) >> 32) * count) >> 32);
}

/* [0, 1) */
static inline double ligi_random_unit(ligi_random *random)
{
    return (double)(ligi_random_next(random) >> 11) * 0x1p-53;
}

#endif
