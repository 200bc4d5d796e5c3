/* Packing and unpacking of strided tensors. */
#ifndef LIGI_STRIDE_H
#define LIGI_STRIDE_H

#include "tensor/memory.h"

/* Bytes [offset, offset + bytes) of the tensor as if it were packed, from a strided host tensor
 * into `flat`, and back. The range need not start or end at an element boundary. */
void ligi_tensor_pack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes, void *flat);
void ligi_tensor_unpack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes,
                              const void *flat);

#endif
