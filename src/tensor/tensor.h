/* Checks of tensors that callers pass. */
#ifndef LIGI_TENSOR_H
#define LIGI_TENSOR_H

#include "tensor/memory.h"

/* lig_tensors_check; without `with_data` a tensor may lack its memory. */
lig_status ligi_tensors_check(const lig_tensor *tensors, size_t count, int with_data);

/* The size of a shape in bytes; 0 and LIG_E_INVALID/LIMIT on a negative dimension or overflow. */
lig_status ligi_shape_bytes(const int64_t *shape, uint32_t ndim, uint32_t dtype, uint64_t *bytes);

#endif
