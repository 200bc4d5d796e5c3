/* The body of each hash_*.c; LIGI_HASH_NAME and LIGI_HASH_KIND are defined by the includer. A NULL
 * secret is XXH3's own. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/xxh3/hash_kernel.h"

#include <ligament/base.h>

#include <string.h>

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

#if defined(__x86_64__)
#include <emmintrin.h>

/* Non-temporal stores: they do not fetch the line they overwrite and do not pollute the caches. */
static void stream(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % 64 < bytes ? -(uintptr_t)to % 64 : bytes;

    memcpy(to, from, head);
    for (bytes -= head, to += head, from += head; bytes >= 64; bytes -= 64, to += 64, from += 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    memcpy(to, from, bytes);
    _mm_sfence();
}
#else
#define stream memcpy
#endif

#define PIECE_BYTES ((size_t)64 << 10) /* is still in the nearest cache when it is copied */

static uint64_t kernel64_copy(const void *secret, void *to, const void *from, size_t bytes)
{
    XXH3_state_t state;

    XXH3_64bits_reset_withSecret(&state, secret, LIG_SECRET_BYTES);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        XXH3_64bits_update(&state, (const uint8_t *)from + at, piece);
        stream((uint8_t *)to + at, (const uint8_t *)from + at, piece);
    }
    return XXH3_64bits_digest(&state);
}

const ligi_hash_kernel LIGI_HASH_NAME = {LIGI_HASH_KIND, kernel64, kernel128, kernel64_copy};
