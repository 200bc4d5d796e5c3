/* XXH3 compiled for one instruction set: hash_sse2.c, hash_avx2.c and hash_avx512.c each include
 * xxhash.h with their own flags, so that one library holds all of them and hash.c picks at run
 * time. */
#ifndef LIGI_HASH_KERNEL_H
#define LIGI_HASH_KERNEL_H

#include "base/hash.h"

typedef struct ligi_hash_kernel {
    const char *kind;
    uint64_t (*hash64)(const void *secret, const void *data, size_t bytes);
    ligi_hash128 (*hash128)(const void *secret, const void *data, size_t bytes);
    uint64_t (*hash64_copy)(const void *secret, void *to, const void *from, size_t bytes);
} ligi_hash_kernel;

extern const ligi_hash_kernel ligi_hash_sse2, ligi_hash_avx2, ligi_hash_avx512;

#endif
