/* The body of each hash_*.c; LIGI_HASH_NAME and LIGI_HASH_KIND are defined by the includer. A NULL
 * secret is XXH3's own. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash_kernel.h"

#include <ligament/base.h>

static uint64_t kernel64(const void *secret, const void *data, size_t bytes)
{
    return secret ? XXH3_64bits_withSecret(data, bytes, secret, LIG_SECRET_BYTES)
                  : XXH3_64bits(data, bytes);
}

static ligi_hash128 kernel128(const void *secret, const void *data, size_t bytes)
{
    XXH128_hash_t hash = secret ? XXH3_128bits_withSecret(data, bytes, secret, LIG_SECRET_BYTES)
                                : XXH3_128bits(data, bytes);
    return (ligi_hash128){hash.low64, hash.high64};
}

const ligi_hash_kernel LIGI_HASH_NAME = {LIGI_HASH_KIND, kernel64, kernel128};
