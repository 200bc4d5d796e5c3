/* Hashes of blocks in the memory of a CUDA device, computed there: the values of ligi_hash64.
 * Everything here is **shared**. */
#ifndef LIGI_CUDA_HASH_H
#define LIGI_CUDA_HASH_H

#include <ligament/base.h>

#define LIGI_CUDA_HASH_MIN_BYTES 241 /* smaller blocks are hashed by another algorithm */

typedef struct ligi_cuda_block { /* as the kernel reads it */
    uint64_t address, bytes;
} ligi_cuda_block;

/* 1 if the device can compute hashes, i.e. its driver has accepted the kernel. Loads the kernel at
 * the first call. */
int ligi_cuda_hash_usable(int32_t device);
/* Fills hashes[i] with the hash of blocks[i], each of at least LIGI_CUDA_HASH_MIN_BYTES bytes.
 * `secret` has LIG_SECRET_BYTES bytes. Waits for the work passed to ligi_cuda_follow, and for
 * completion. */
lig_status ligi_cuda_hash(int32_t device, const void *secret, const ligi_cuda_block *blocks,
                          size_t count, uint64_t *hashes);

#endif
