/* Random numbers and draws from distributions. Pure: the same seed gives the same keys
 * everywhere. */
#ifndef LIGI_DRAW_H
#define LIGI_DRAW_H

#include "params/sampling/alias_table.h"

#include <ligament/params.h>

/* --- random numbers: xoshiro256++ --- */

typedef struct ligi_rng {
    uint64_t s[4];
} ligi_rng;

/* Streams of different (node, worker) are independent. */
void ligi_rng_init(ligi_rng *rng, uint64_t seed, uint32_t node, uint32_t worker);

static inline uint64_t ligi_rng_next(ligi_rng *rng)
{
    uint64_t *s = rng->s, mix = s[0] + s[3], t = s[1] << 17;
    uint64_t result = (mix << 23 | mix >> 41) + s[0];
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* 0 .. count - 1, exactly uniform; count >= 1. */
static inline uint64_t ligi_rng_below(ligi_rng *rng, uint64_t count)
{
    unsigned __int128 wide = (unsigned __int128)ligi_rng_next(rng) * count;
    if ((uint64_t)wide < count) {
        uint64_t threshold = -count % count;
        while ((uint64_t)wide < threshold)
            wide = (unsigned __int128)ligi_rng_next(rng) * count;
    }
    return (uint64_t)(wide >> 64);
}

/* [0, 1) */
static inline double ligi_rng_unit(ligi_rng *rng)
{
    return (double)(ligi_rng_next(rng) >> 11) * 0x1p-53;
}

/* --- distributions over 0 .. count - 1 --- */

typedef struct ligi_draw {
    uint32_t kind; /* lig_params_distribution */
    uint32_t count;
    uint32_t available; /* with a probability above 0 */
    double log_count;   /* of count + 1; log-uniform */
    double *weights;    /* WEIGHTS: a copy, for draws without the table */
    ligi_alias_table alias;
} ligi_draw;

/* Fills a zeroed distribution; weights are read only for WEIGHTS, and copied. */
lig_status ligi_draw_init(ligi_draw *draw, uint32_t kind, uint32_t count, const double *weights);
void ligi_draw_fini(ligi_draw *draw);

uint32_t ligi_draw_log(const ligi_draw *draw, double unit); /* for unit in [0, 1) */
/* The probability of `item`, up to a constant factor. */
double ligi_draw_weight(const ligi_draw *draw, uint32_t item);

static inline uint32_t ligi_draw_one(const ligi_draw *draw, ligi_rng *rng)
{
    if (draw->kind == LIG_PARAMS_SAMPLE_UNIFORM)
        return (uint32_t)ligi_rng_below(rng, draw->count);
    if (draw->kind == LIG_PARAMS_SAMPLE_LOG_UNIFORM)
        return ligi_draw_log(draw, ligi_rng_unit(rng));
    return ligi_params_alias_table_draw(&draw->alias, ligi_rng_next(rng));
}

/* --- without replacement --- */

/* The items of one sample so far. Zeroed is empty. */
typedef struct ligi_seen {
    uint32_t *cells; /* item + 1; 0 is free */
    uint32_t capacity, count;
} ligi_seen;

void ligi_seen_fini(ligi_seen *seen);
/* Reserves room, so that ligi_seen_add takes `more` without failing. */
lig_status ligi_seen_reserve(ligi_seen *seen, uint64_t more);
/* 1 if it is new. Items are below UINT32_MAX. */
int ligi_seen_add(ligi_seen *seen, uint32_t item);
int ligi_seen_has(const ligi_seen *seen, uint32_t item);
/* Removes one that is in the set. */
void ligi_seen_remove(ligi_seen *seen, uint32_t item);
/* Removes some that are in the set, each once; NULL is valid. */
void ligi_seen_remove_all(ligi_seen *seen, const uint32_t *items, uint32_t count);

/* --- restricted to some items --- */

/* A set of items, each once. Drawing from it is exact and takes time proportional to its size, for
 * all `count` together: the fallback when rejection sampling from the whole would take too long. */
typedef struct ligi_among {
    const uint32_t *items; /* NULL: 0 .. item_count - 1 */
    uint32_t item_count;
    ligi_seen *seen; /* NULL: with replacement; otherwise these are excluded, and draws are added */
} ligi_among;

/* Fills out[0 .. *got): `count`, or fewer if there are not enough. */
lig_status ligi_draw_among(const ligi_draw *draw, ligi_rng *rng, const ligi_among *among,
                           uint32_t count, uint32_t *out, uint32_t *got);

/* Fills `count` items; with `seen`, none that is in it, and they are added. LIG_E_LIMIT if there
 * are not enough. On failure none is added. */
lig_status ligi_draw_many(const ligi_draw *draw, ligi_rng *rng, ligi_seen *seen, uint32_t count,
                          uint32_t *out);

#endif
