/* Memory of CUDA devices through the driver's library, looked for when first asked; nothing of CUDA
 * is needed to build. All calls may be made by any thread. What is copied must be at rest: whoever
 * wrote it on a stream has waited for that stream, as lig_tensor says. */
#ifndef LIGI_CUDA_H
#define LIGI_CUDA_H

#include <ligament/base.h>

/* UNSUPPORTED, with what is missing, where there is no driver or no such device. */
lig_status ligi_cuda_usable(int32_t device);
lig_status ligi_cuda_to_host(void *host, const void *data, size_t bytes, int32_t device);
lig_status ligi_cuda_from_host(void *data, const void *host, size_t bytes, int32_t device);

#endif
