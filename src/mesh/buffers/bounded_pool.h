/* Memory for pushed tensors without a registered buffer: one block per request, from the pool of
 * its worker. A block is reused only when its request has been answered and no hold remains. */
#ifndef LIGI_BOUNDED_POOL_H
#define LIGI_BOUNDED_POOL_H

#include "net/net.h"

#include <stdatomic.h>

typedef struct ligi_block_pool
    ligi_block_pool; /* shared; freed when closed and without blocks in use */

#define LIGI_BLOCK_ALIGNMENT 64
/* Of tensors stored one after another in a block. */
uint64_t ligi_block_aligned(uint64_t bytes);

#define LIGI_BLOCK_KEPT 2

typedef struct ligi_block {
    ligi_block_pool *pool;
    struct ligi_block *next;
    atomic_uint holds;
    uint32_t order; /* its bytes are a power of two */
    uint64_t bytes;
    uint8_t *data;           /* aligned to LIGI_BLOCK_ALIGNMENT */
    ligi_mapping **mappings; /* lent memory that contains the request's tensors */
    size_t mapping_count, mapping_room;
    struct {
        void (*drop)(void *object);
        void *object;
    } kept[LIGI_BLOCK_KEPT]; /* other memory that contains the request's tensors */
    uint32_t kept_count;
} ligi_block;

lig_status ligi_block_pool_create(ligi_block_pool **pool, uint64_t bytes_max);
void ligi_block_pool_close(ligi_block_pool *pool);
/* Bytes of its blocks, used or not. */
uint64_t ligi_block_pool_bytes(ligi_block_pool *pool);
uint64_t ligi_block_pool_limit(const ligi_block_pool *pool); /* bytes_max */

/* A block of at least `bytes`, with one reference. LIG_E_LIMIT if the pool would exceed its limit.
 * Allocates only if no block of the size is free. */
lig_status ligi_block_pool_take(ligi_block_pool *pool, uint64_t bytes, ligi_block **block);
void ligi_block_hold(ligi_block *block);
/* The last release returns it. Any thread. NULL is valid. */
void ligi_block_drop(ligi_block *block);
/* The last release of the block also drops the object, on its thread. At most LIGI_BLOCK_KEPT. */
void ligi_block_keep(ligi_block *block, void *object, void (*drop)(void *object));
/* The block keeps the mapping readable as long as it is held. */
lig_status ligi_block_lend(ligi_block *block, ligi_mapping *mapping);

#endif
