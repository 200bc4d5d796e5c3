/* A pool of keys that are prepared together and used several times each, in random order. Pure. */
#ifndef LIGI_SAMPLE_POOL_H
#define LIGI_SAMPLE_POOL_H

#include "params/sampling/draw.h"

typedef struct ligi_sample_pool {
    uint32_t *items;
    uint32_t capacity, size, reuse;
    uint32_t at, pass; /* items[at ..) remain in this pass */
    uint32_t *put_by;  /* drawn and returned: first in the next sample */
    size_t put_by_count, put_by_capacity;
} ligi_sample_pool;

/* Fills a zeroed pool; it is empty. */
lig_status ligi_sample_pool_init(ligi_sample_pool *pool, uint32_t size, uint32_t reuse);
void ligi_sample_pool_fini(ligi_sample_pool *pool);

typedef struct ligi_sample_pool_draw_options {
    const ligi_draw *draw;
    ligi_rng *rng;
    ligi_seen *seen; /* NULL: with replacement */
    /* Called with the items of each new pool; may be NULL. */
    lig_status (*filled)(void *context, const uint32_t *items, uint32_t count);
    void *context;
} ligi_sample_pool_draw_options;

/* Fills `count` items from the pool, and from new ones when it is used up. LIG_E_LIMIT if there are
 * not enough without replacement. */
lig_status ligi_sample_pool_draw(ligi_sample_pool *pool, const ligi_sample_pool_draw_options *how,
                                 uint32_t count, uint32_t *out);

#endif
