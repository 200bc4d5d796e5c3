#include "params/sampling/sample_pool.h"

#include "base/error.h"

#include <stdlib.h>

/* Consecutive pools that may add nothing new to a sample without replacement before it stops using
 * the pool. */
enum { IDLE_POOLS = 4 };

lig_status ligi_sample_pool_init(ligi_sample_pool *pool, uint32_t size, uint32_t reuse)
{
    LIG_TRY(ligi_calloc(&pool->items, size, sizeof *pool->items, "a sampling pool"));
    pool->capacity = size;
    pool->reuse = reuse;
    pool->pass = reuse;
    return LIG_OK;
}

void ligi_sample_pool_fini(ligi_sample_pool *pool)
{
    free(pool->items);
    free(pool->put_by);
    *pool = (ligi_sample_pool){0};
}

/* Draws new items into the pool, none twice with `distinct`. Unused items are lost. */
static lig_status fill(ligi_sample_pool *pool, const ligi_draw *draw, ligi_rng *rng, int distinct)
{
    ligi_seen seen = {0};
    uint32_t size = pool->capacity;
    if (distinct && size > draw->available)
        size = draw->available;
    lig_status status = ligi_draw_many(draw, rng, distinct ? &seen : NULL, size, pool->items);
    ligi_seen_fini(&seen);
    LIG_TRY(status);
    pool->size = size;
    pool->at = pool->pass = 0;
    return LIG_OK;
}

/* 1 and the next item, or 0 if all were used `reuse` times. Each pass is a new order, shuffled
 * incrementally. */
static int next_item(ligi_sample_pool *pool, ligi_rng *rng, uint32_t *item)
{
    if (pool->at == pool->size && pool->pass < pool->reuse) {
        pool->at = 0;
        pool->pass++;
    }
    if (pool->pass >= pool->reuse || pool->size == 0)
        return 0;
    uint32_t other = pool->at + (uint32_t)ligi_rng_below(rng, pool->size - pool->at);
    *item = pool->items[other];
    pool->items[other] = pool->items[pool->at];
    pool->items[pool->at++] = *item;
    return 1;
}

static lig_status refill(ligi_sample_pool *pool, const ligi_sample_pool_draw_options *how)
{
    LIG_TRY(fill(pool, how->draw, how->rng, how->seen != NULL));
    return how->filled ? how->filled(how->context, pool->items, pool->size) : LIG_OK;
}

/* Keys that this sample already has are kept for the next one. There are never more of them than a
 * pool has. */
static lig_status put_by(ligi_sample_pool *pool, uint32_t item)
{
    if (pool->put_by_count >= (size_t)pool->capacity * pool->reuse)
        return LIG_OK;
    LIG_TRY(ligi_grow(&pool->put_by, &pool->put_by_capacity, pool->put_by_count + 1,
                      sizeof *pool->put_by, "a sampling pool"));
    pool->put_by[pool->put_by_count++] = item;
    return LIG_OK;
}

static uint32_t take_put_by(ligi_sample_pool *pool, ligi_seen *seen, uint32_t count, uint32_t *out)
{
    uint32_t at = 0;
    size_t kept = 0;
    for (size_t i = 0; i < pool->put_by_count; i++) {
        uint32_t item = pool->put_by[i];
        if (at < count && ligi_seen_add(seen, item))
            out[at++] = item;
        else
            pool->put_by[kept++] = item;
    }
    pool->put_by_count = kept;
    return at;
}

static lig_status draw_unseen(ligi_sample_pool *pool, const ligi_sample_pool_draw_options *how,
                              uint32_t count, uint32_t *out)
{
    uint32_t idle = 0, at, item;
    uint32_t left =
        how->draw->available > how->seen->count ? how->draw->available - how->seen->count : 0;
    if (count > left)
        return ligi_draw_many(how->draw, how->rng, how->seen, count, out);
    LIG_TRY(ligi_seen_reserve(how->seen, count));
    at = take_put_by(pool, how->seen, count, out);
    while (at < count && idle < IDLE_POOLS) {
        if (!next_item(pool, how->rng, &item)) {
            LIG_TRY(refill(pool, how));
            idle++;
        } else if (ligi_seen_add(how->seen, item)) {
            out[at++] = item;
            idle = 0;
        } else {
            LIG_TRY(put_by(pool, item));
        }
    }
    return ligi_draw_many(how->draw, how->rng, how->seen, count - at, out + at);
}

lig_status ligi_sample_pool_draw(ligi_sample_pool *pool, const ligi_sample_pool_draw_options *how,
                                 uint32_t count, uint32_t *out)
{
    if (how->seen)
        return draw_unseen(pool, how, count, out);
    for (uint32_t at = 0; at < count;) {
        if (next_item(pool, how->rng, &out[at]))
            at++;
        else
            LIG_TRY(refill(pool, how));
    }
    return LIG_OK;
}
