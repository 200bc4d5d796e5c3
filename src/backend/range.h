/* Ranges of a pack that lies in memory. */
#ifndef LIGI_RANGE_H
#define LIGI_RANGE_H

#include <ligament/backend.h>

/* Does what pack_read does for one range of pack `id`, whose bytes are the `bytes` at `base`. */
lig_status ligi_range_copy(const void *base, uint64_t bytes, uint64_t id, const void *secret,
                           const lig_range *range);

#endif
