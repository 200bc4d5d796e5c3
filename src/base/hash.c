#include "base/hash.h"

#include "base/xxh3/hash_kernel.h"

#include <ligament/base.h>

/* The processor is queried each time: this loads and tests a word that the runtime fills once, and
 * needs no global variable of the library. */
static const ligi_hash_kernel *kernel(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return &ligi_hash_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &ligi_hash_avx2;
#endif
    return &ligi_hash_sse2;
}

uint64_t ligi_hash64(const void *secret, const void *data, size_t bytes)
{
    return kernel()->hash64(secret, data, bytes);
}

ligi_hash128 ligi_hash128_keyed(const void *secret, const void *data, size_t bytes)
{
    return kernel()->hash128(secret, data, bytes);
}

uint64_t ligi_hash64_copy(const void *secret, void *to, const void *from, size_t bytes)
{
    return kernel()->hash64_copy(secret, to, from, bytes);
}

uint64_t ligi_hash64_plain(const void *data, size_t bytes)
{
    return kernel()->hash64(NULL, data, bytes);
}

ligi_hash128 ligi_hash128_plain(const void *data, size_t bytes)
{
    return kernel()->hash128(NULL, data, bytes);
}

const char *lig_hash_kind(void)
{
    return kernel()->kind;
}

uint64_t lig_hash_block(const void *secret, const void *data, uint64_t bytes)
{
    return ligi_hash64(secret, data, (size_t)bytes);
}
