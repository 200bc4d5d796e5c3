/* Whole copies between host and device memory, through the staging buffers: what a single thread
 * copies from host memory is a fraction of what the bus carries, so large copies take several. */
#ifndef LIGI_COPY_TEAM_H
#define LIGI_COPY_TEAM_H

#include <ligament/tensor.h>

/* Both return when all bytes have arrived, or after a failure when no copy is under way. */
lig_status ligi_copy_to_host(void *host, const void *data, uint64_t bytes, uint16_t memory,
                             int32_t device);
lig_status ligi_copy_from_host(void *data, const void *host, uint64_t bytes, uint16_t memory,
                               int32_t device);

#endif
