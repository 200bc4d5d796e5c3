/* Where pushed tensors are stored in a server: in a buffer registered for (worker, key), or in a
 * block of the worker's pool. A request takes one block for all its tensors without a registered
 * buffer. A block is reused only when its request is answered and no hold is left. So a second push
 * under the same key never changes the tensors of the first, whatever their number in flight. */
#ifndef LIGI_RECEIVE_BUFFERS_H
#define LIGI_RECEIVE_BUFFERS_H

#include "base/map.h"
#include "net/net.h"

#include <stdatomic.h>

/* --- blocks --- */

typedef struct ligi_block_pool
    ligi_block_pool; /* shared; freed when closed and without blocks in use */

#define LIGI_BLOCK_ALIGNMENT 64
/* Of tensors stored one after another in a block. */
uint64_t ligi_block_aligned(uint64_t bytes);

typedef struct ligi_block {
    ligi_block_pool *pool;
    struct ligi_block *next;
    atomic_uint holds;
    uint32_t order; /* its bytes are a power of two */
    uint64_t bytes;
    uint8_t *data;           /* aligned to LIGI_BLOCK_ALIGNMENT */
    ligi_mapping **mappings; /* lent memory that contains the request's tensors */
    size_t mapping_count, mapping_room;
} ligi_block;

lig_status ligi_block_pool_create(ligi_block_pool **pool, uint64_t bytes_max);
void ligi_block_pool_close(ligi_block_pool *pool);
/* Bytes of its blocks, used or not. */
uint64_t ligi_block_pool_bytes(ligi_block_pool *pool);

/* A block of at least `bytes`, with one reference. LIMIT if the pool would exceed its limit.
 * Allocates only if no block of the size is free. */
lig_status ligi_block_pool_take(ligi_block_pool *pool, uint64_t bytes, ligi_block **block);
void ligi_block_hold(ligi_block *block);
/* The last release returns it. Any thread. NULL is valid. */
void ligi_block_drop(ligi_block *block);
/* The block keeps the mapping readable as long as it is held. */
lig_status ligi_block_lend(ligi_block *block, ligi_mapping *mapping);

/* --- registered buffers --- */

typedef struct ligi_registered_buffer {
    uint64_t key;
    uint8_t *data;
    uint64_t bytes;
    const void *holder; /* the request that uses it, until it is answered */
    uint64_t claim;     /* number of the last request that was assigned it */
    uint32_t parked;    /* requests waiting in blocks until it is free */
} ligi_registered_buffer;

typedef struct ligi_registered { /* of one worker; zero-initialised is valid */
    ligi_map map;
    ligi_registered_buffer **all;
    size_t count, room;
} ligi_registered;

#define LIGI_REGISTERED_MAX 65536

/* NULL if nothing is registered under the key. */
ligi_registered_buffer *ligi_registered_find(const ligi_registered *places, uint64_t key);
/* Registers, or replaces the registration; BUSY while a request uses the old buffer. */
lig_status ligi_registered_set(ligi_registered *places, uint64_t key, void *data, uint64_t bytes);
void ligi_registered_fini(ligi_registered *places);

#endif
