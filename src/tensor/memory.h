/* The one place where bytes are copied between kinds of memory, and where strided tensors are
 * walked. */
#ifndef LIGI_MEMORY_H
#define LIGI_MEMORY_H

#include <ligament/tensor.h>

/* LIG_E_UNSUPPORTED with a sentence when this build or machine has no such memory. Host memory
 * always is. */
lig_status ligi_memory_usable(uint16_t memory, int32_t device);
lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device);
lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device);

/* Bytes [offset, offset + bytes) of the tensor as if it were packed, from a strided host tensor
 * into `flat`, and back. Both need not start or end at an element's border. */
void ligi_tensor_pack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes, void *flat);
void ligi_tensor_unpack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes,
                              const void *flat);

/* lig_tensors_check; without `with_data` a tensor may lack its memory. */
lig_status ligi_tensors_check(const lig_tensor *tensors, size_t count, int with_data);

/* Bytes that a shape takes; 0 and LIG_E_INVALID/LIMIT on a negative dimension or overflow. */
lig_status ligi_shape_bytes(const int64_t *shape, uint32_t ndim, uint32_t dtype, uint64_t *bytes);

#endif
