/* Memory of CUDA devices through the driver's library, which is loaded at first use; nothing of
 * CUDA is needed to build. Thread-safe. Copied memory must be idle: work on its streams has been
 * waited for, as lig_tensor says. */
#ifndef LIGI_CUDA_H
#define LIGI_CUDA_H

#include <ligament/base.h>

/* UNSUPPORTED, with what is missing, where there is no driver or no such device. */
lig_status ligi_cuda_usable(int32_t device);
lig_status ligi_cuda_to_host(void *host, const void *data, size_t bytes, int32_t device);
lig_status ligi_cuda_from_host(void *data, const void *host, size_t bytes, int32_t device);

#endif
