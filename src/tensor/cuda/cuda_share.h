/* Memory of a device that another process can open, and pinned host memory. Allocating and pinning
 * may wait for the device, so do not use them on the hot path. Everything here is **shared**. */
#ifndef LIGI_CUDA_SHARE_H
#define LIGI_CUDA_SHARE_H

#include "tensor/cuda/cuda_driver.h"

/* LIG_E_NOMEM if the device is out of memory. */
lig_status ligi_cuda_alloc(int32_t device, uint64_t bytes, void **data);
void ligi_cuda_free(int32_t device, void *data);

/* Host memory that devices read and write directly. `bytes` is a multiple of a page. */
lig_status ligi_cuda_pin(int32_t device, uint64_t bytes, void **data);
void ligi_cuda_unpin(int32_t device, void *data, uint64_t bytes);
/* Its address for the device, which may differ from the host's. */
lig_status ligi_cuda_pinned_address(int32_t device, void *data, uint64_t *address);

/* A handle by which another process opens memory of ligi_cuda_alloc. It stays readable there after
 * this process has freed it or has ended. */
lig_status ligi_cuda_export(int32_t device, const void *data, ligi_cuda_handle *handle);
/* Fails in the process that exported it, and if the system does not permit sharing between
 * processes. */
lig_status ligi_cuda_import(int32_t device, const ligi_cuda_handle *handle, void **data);
void ligi_cuda_import_close(int32_t device, void *data);

/* The same for a device in all processes, regardless of its number there. */
lig_status ligi_cuda_uuid(int32_t device, uint8_t uuid[16]);

#endif
