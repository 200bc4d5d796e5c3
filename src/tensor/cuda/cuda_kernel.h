/* Kernels of the library: PTX that the driver compiles at first use. Everything here is **shared**.
 */
#ifndef LIGI_CUDA_KERNEL_H
#define LIGI_CUDA_KERNEL_H

#include "tensor/cuda/cuda_device.h"

#include <pthread.h>

#define LIGI_CUDA_KERNELS 4 /* of a module at most */

/* A module with static storage; `lock` is initialised statically. */
typedef struct ligi_cuda_module {
    const char *ptx, *what; /* `what` is for error texts */
    const char *names[LIGI_CUDA_KERNELS];
    pthread_mutex_t lock; /* guards what follows */
    struct {
        int tried;
        lig_status status;
        void *kernels[LIGI_CUDA_KERNELS];
    } of[LIGI_CUDA_DEVICES];
} ligi_cuda_module;

/* Loads the module on a device. LIG_E_UNSUPPORTED, at this and every later call, if the driver
 * refuses it. */
lig_status ligi_cuda_module_load(ligi_cuda_module *module, int32_t device);

typedef struct ligi_cuda_launch {
    unsigned kernel; /* index in `names` */
    uint64_t threads;
    void *parameter; /* the only one; copied */
} ligi_cuda_launch;

/* Queues kernels, one after another, on a stream (a CUstream; NULL is the legacy default one). The
 * module has been loaded. */
lig_status ligi_cuda_launch_all(const ligi_cuda_module *module, int32_t device, void *stream,
                                const ligi_cuda_launch *launches, size_t count);

#endif
