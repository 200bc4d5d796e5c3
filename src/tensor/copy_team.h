/* Complete copies between host and device memory through the staging buffers. A single thread reads
 * host memory at a fraction of the bus bandwidth, so large copies use several threads. */
#ifndef LIGI_COPY_TEAM_H
#define LIGI_COPY_TEAM_H

#include <ligament/tensor.h>

/* Both return when all bytes have arrived or, after a failure, when no copy is in progress. */
lig_status ligi_copy_to_host(void *host, const void *data, uint64_t bytes, uint16_t memory,
                             int32_t device);
lig_status ligi_copy_from_host(void *data, const void *host, uint64_t bytes, uint16_t memory,
                               int32_t device);

#endif
