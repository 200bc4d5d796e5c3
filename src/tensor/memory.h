/* Copies between kinds of memory; no other module does this. */
#ifndef LIGI_MEMORY_H
#define LIGI_MEMORY_H

#include <ligament/tensor.h>

/* LIG_E_UNSUPPORTED with an error text if this build or machine has no such memory. Host memory is
 * always supported. */
lig_status ligi_memory_usable(uint16_t memory, int32_t device);
/* The same, and LIG_E_INVALID unless device memory of `bytes` bytes begins at `data`. */
lig_status ligi_memory_check(const void *data, uint64_t bytes, uint16_t memory, int32_t device);

/* A block whose hash is wanted, in memory of one kind and device. */
typedef struct ligi_memory_block {
    const void *data;
    uint64_t bytes;
    uint64_t *hash; /* filled with ligi_hash64 of it */
} ligi_memory_block;

/* The smallest block that can be hashed in place; UINT64_MAX: none can. */
uint64_t ligi_memory_hash_least(uint16_t memory, int32_t device);
/* Hashes blocks of at least that size. */
lig_status ligi_memory_hash(const void *secret, const ligi_memory_block *blocks, size_t count,
                            uint16_t memory, int32_t device);

/* Synchronous copies; large ones of device memory use several threads. */
lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device);
lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device);

#endif
