#include "mesh/buffers/bounded_pool.h"

#include "base/error.h"
#include "net/link/link.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

enum { ORDER_LEAST = 8, ORDERS = 50 };

struct ligi_block_pool {
    uint64_t bytes_max;
    pthread_mutex_t lock; /* guards all below */
    ligi_block *free[ORDERS];
    uint64_t bytes; /* of all blocks */
    size_t used;    /* blocks */
    int closed;
};

uint64_t ligi_block_aligned(uint64_t bytes)
{
    return (bytes + LIGI_BLOCK_ALIGNMENT - 1) & ~(uint64_t)(LIGI_BLOCK_ALIGNMENT - 1);
}

lig_status ligi_block_pool_create(ligi_block_pool **out, uint64_t bytes_max)
{
    ligi_block_pool *pool;
    LIG_TRY(ligi_calloc(&pool, 1, sizeof *pool, "receive buffers"));
    pool->bytes_max = bytes_max;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return LIG_OK;
}

static void block_free(ligi_block *block)
{
    free(block->mappings);
    free(block->data);
    free(block);
}

/* With the lock: frees unused blocks until `need` more bytes are allowed, or none is left. */
static void trim(ligi_block_pool *pool, uint64_t need)
{
    for (uint32_t order = ORDERS; order-- > 0;) {
        while (pool->free[order] &&
               (pool->bytes > pool->bytes_max || pool->bytes_max - pool->bytes < need)) {
            ligi_block *block = pool->free[order];
            pool->free[order] = block->next;
            pool->bytes -= block->bytes;
            block_free(block);
        }
    }
}

static void pool_free(ligi_block_pool *pool)
{
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void ligi_block_pool_close(ligi_block_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closed = 1;
    trim(pool, UINT64_MAX);
    int last = pool->used == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}

uint64_t ligi_block_pool_bytes(ligi_block_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t bytes = pool->bytes;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

uint64_t ligi_block_pool_limit(const ligi_block_pool *pool)
{
    return pool->bytes_max;
}

static uint32_t order_of(uint64_t bytes)
{
    uint32_t order = ORDER_LEAST;
    while (order < ORDERS && UINT64_C(1) << order < bytes)
        order++;
    return order;
}

static lig_status block_create(ligi_block_pool *pool, uint32_t order, ligi_block **out)
{
    ligi_block *block;
    void *data;
    uint64_t bytes = UINT64_C(1) << order;
    LIG_TRY(ligi_calloc(&block, 1, sizeof *block, "a receive buffer"));
    if (posix_memalign(&data, LIGI_BLOCK_ALIGNMENT, bytes) != 0) {
        free(block);
        return lig_fail(LIG_E_NOMEM, "out of memory for a receive buffer of %llu bytes",
                        (unsigned long long)bytes);
    }
    block->pool = pool;
    block->order = order;
    block->bytes = bytes;
    block->data = data;
    *out = block;
    return LIG_OK;
}

/* With the lock. */
static lig_status add_block(ligi_block_pool *pool, uint32_t order, ligi_block **block)
{
    uint64_t bytes = UINT64_C(1) << order;
    trim(pool, bytes);
    if (pool->bytes > pool->bytes_max || pool->bytes_max - pool->bytes < bytes)
        return lig_fail(LIG_E_LIMIT,
                        "receive_bytes exceeded: %llu bytes of requests are unanswered, %llu more "
                        "arrived, and the limit per worker is %llu",
                        (unsigned long long)pool->bytes, (unsigned long long)bytes,
                        (unsigned long long)pool->bytes_max);
    LIG_TRY(block_create(pool, order, block));
    pool->bytes += bytes;
    return LIG_OK;
}

lig_status ligi_block_pool_take(ligi_block_pool *pool, uint64_t bytes, ligi_block **out)
{
    uint32_t order = order_of(bytes);
    if (order >= ORDERS)
        return lig_fail(LIG_E_LIMIT, "request too large: %llu bytes", (unsigned long long)bytes);
    lig_status status = LIG_OK;
    pthread_mutex_lock(&pool->lock);
    ligi_block *block = pool->free[order];
    if (block)
        pool->free[order] = block->next;
    else
        status = add_block(pool, order, &block);
    pool->used += status == LIG_OK;
    pthread_mutex_unlock(&pool->lock);
    if (status != LIG_OK)
        return status;
    atomic_store_explicit(&block->holds, 1, memory_order_relaxed);
    *out = block;
    return LIG_OK;
}

void ligi_block_hold(ligi_block *block)
{
    atomic_fetch_add_explicit(&block->holds, 1, memory_order_relaxed);
}

void ligi_block_drop(ligi_block *block)
{
    if (block == NULL || atomic_fetch_sub_explicit(&block->holds, 1, memory_order_acq_rel) != 1)
        return;
    while (block->mapping_count > 0)
        ligi_mapping_drop(block->mappings[--block->mapping_count]);
    while (block->kept_count > 0) {
        block->kept_count--;
        block->kept[block->kept_count].drop(block->kept[block->kept_count].object);
    }
    ligi_block_pool *pool = block->pool;
    pthread_mutex_lock(&pool->lock);
    block->next = pool->free[block->order];
    pool->free[block->order] = block;
    pool->used--;
    if (pool->closed)
        trim(pool, UINT64_MAX);
    int last = pool->closed && pool->used == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}

void ligi_block_keep(ligi_block *block, void *object, void (*drop)(void *object))
{
    assert(block->kept_count < LIGI_BLOCK_KEPT);
    block->kept[block->kept_count].object = object;
    block->kept[block->kept_count++].drop = drop;
}

lig_status ligi_block_lend(ligi_block *block, ligi_mapping *mapping)
{
    LIG_TRY(ligi_grow(&block->mappings, &block->mapping_room, block->mapping_count + 1,
                      sizeof *block->mappings, "lent memory"));
    ligi_mapping_keep(mapping);
    block->mappings[block->mapping_count++] = mapping;
    return LIG_OK;
}
