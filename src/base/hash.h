/* XXH3, with the widest vectors the machine has (chosen at run time). */
#ifndef LIGI_HASH_H
#define LIGI_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ligi_hash128 {
    uint64_t low, high;
} ligi_hash128;

/* Keyed by a secret of LIG_SECRET_BYTES bytes (backend.h). lig_hash_block is the public name of the
 * first. */
uint64_t ligi_hash64(const void *secret, const void *data, size_t bytes);
ligi_hash128 ligi_hash128_keyed(const void *secret, const void *data, size_t bytes);
/* ligi_hash64 of `from`, which is also copied, bypassing the caches: for large blocks that are not
 * used at once. */
uint64_t ligi_hash64_copy(const void *secret, void *to, const void *from, size_t bytes);

/* Without a key: for tables in memory and to detect accidental changes, never against attackers. */
uint64_t ligi_hash64_plain(const void *data, size_t bytes);
ligi_hash128 ligi_hash128_plain(const void *data, size_t bytes);

#endif
