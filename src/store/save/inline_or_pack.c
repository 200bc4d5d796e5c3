#include "store/save/inline_or_pack.h"

#include <ligament/backend.h>
#include <string.h>

#define INLINE_BYTES (UINT64_C(64) << 10)
#define INLINE_MANIFEST_BYTES (UINT64_C(1) << 20)

static uint64_t manifest_estimate(const ligi_plan *plan)
{
    uint64_t bytes = strlen(plan->structure) + strlen(plan->about.meta) + plan->graphs.bytes +
                     plan->hash_count * sizeof(uint64_t);
    for (size_t i = 0; i < plan->count; i++)
        bytes +=
            strlen(plan->tensors[i].name) + 28 + plan->tensors[i].ndim * (plan->places ? 9 : 3);
    return bytes;
}

int ligi_inline_allowed(const ligi_plan *plan, uint32_t volume_flags)
{
    return !(volume_flags & LIG_VOLUME_NO_INLINE) &&
           manifest_estimate(plan) < INLINE_MANIFEST_BYTES;
}

int ligi_inline_fits(uint64_t new_bytes)
{
    return new_bytes < INLINE_BYTES;
}
