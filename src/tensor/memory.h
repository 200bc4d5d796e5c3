/* The one place where bytes are copied between kinds of memory, and where strided tensors are
 * walked. */
#ifndef LIGI_MEMORY_H
#define LIGI_MEMORY_H

#include <ligament/tensor.h>

/* LIG_E_UNSUPPORTED with an error text if this build or machine has no such memory. Host memory
 * always is. */
lig_status ligi_memory_usable(uint16_t memory, int32_t device);
lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device);
lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device);

#endif
