#include "backend/file/packs/uncache.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define GRACE_NS INT64_C(5000000)
#define LINE_BYTES 64

ligi_uncaching ligi_uncaching_next(ligi_uncaching now, const ligi_uncaching_times *times)
{
    if (now == LIGI_UNCACHING_NOT_YET && times->waited_ns > 2 * times->landed_ns + GRACE_NS)
        return LIGI_UNCACHING;
    if (now == LIGI_UNCACHING && times->uncached_ns > times->landed_ns / 2 + GRACE_NS / 4)
        return LIGI_UNCACHING_OVER;
    return now;
}

/* By hand: not every compiler knows this feature by name. */
ligi_flush ligi_flush_of(uint32_t leaf_7_ebx)
{
    return leaf_7_ebx & (UINT32_C(1) << 23) ? LIGI_FLUSH_FREELY : LIGI_FLUSH_IN_ORDER;
}

#if defined(__x86_64__)
ligi_flush ligi_flush_here(void)
{
    unsigned a, b = 0, c, d;

    return ligi_flush_of(__get_cpuid_count(7, 0, &a, &b, &c, &d) ? b : 0);
}

__attribute__((target("clflushopt"))) static void flush_freely(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += LINE_BYTES)
        _mm_clflushopt((void *)(data + at));
    _mm_sfence();
}

static void flush_in_order(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += LINE_BYTES)
        _mm_clflush(data + at);
}

void ligi_flush_lines(ligi_flush how, const void *data, uint64_t bytes)
{
    if (how == LIGI_FLUSH_FREELY)
        flush_freely(data, bytes);
    else if (how == LIGI_FLUSH_IN_ORDER)
        flush_in_order(data, bytes);
}
#else
ligi_flush ligi_flush_here(void)
{
    return LIGI_FLUSH_NONE;
}

void ligi_flush_lines(ligi_flush how, const void *data, uint64_t bytes)
{
    (void)how, (void)data, (void)bytes;
}
#endif
