/* The CUDA driver's library, loaded at first use: nothing of CUDA is needed to build. */
#ifndef LIGI_CUDA_DRIVER_H
#define LIGI_CUDA_DRIVER_H

#include <ligament/base.h>

typedef uint64_t ligi_cuda_address; /* CUdeviceptr */

typedef struct ligi_cuda_handle { /* CUipcMemHandle, which is passed by value */
    uint8_t bytes[64];
} ligi_cuda_handle;

/* The driver calls in use, under their names for cuGetProcAddress. Contexts, streams and events are
 * opaque pointers. */
#define LIGI_CUDA_CALLS(CALL)                                                                      \
    CALL(cuInit, (unsigned flags))                                                                 \
    CALL(cuDeviceGet, (int *device, int ordinal))                                                  \
    CALL(cuDeviceGetCount, (int *count))                                                           \
    CALL(cuDevicePrimaryCtxRetain, (void **context, int device))                                   \
    CALL(cuDevicePrimaryCtxRelease, (int device))                                                  \
    CALL(cuCtxPushCurrent, (void *context))                                                        \
    CALL(cuCtxPopCurrent, (void **context))                                                        \
    CALL(cuThreadExchangeStreamCaptureMode, (int *mode))                                           \
    CALL(cuStreamCreate, (void **stream, unsigned flags))                                          \
    CALL(cuStreamDestroy, (void *stream))                                                          \
    CALL(cuStreamSynchronize, (void *stream))                                                      \
    CALL(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                           \
    CALL(cuStreamIsCapturing, (void *stream, int *status))                                         \
    CALL(cuEventCreate, (void **event, unsigned flags))                                            \
    CALL(cuEventDestroy, (void *event))                                                            \
    CALL(cuEventRecord, (void *event, void *stream))                                               \
    CALL(cuEventSynchronize, (void *event))                                                        \
    CALL(cuMemHostRegister, (void *data, size_t bytes, unsigned flags))                            \
    CALL(cuMemcpyHtoDAsync, (ligi_cuda_address to, const void *from, size_t bytes, void *stream))  \
    CALL(cuMemcpyDtoHAsync, (void *to, ligi_cuda_address from, size_t bytes, void *stream))        \
    CALL(cuMemAlloc, (ligi_cuda_address * data, size_t bytes))                                     \
    CALL(cuMemFree, (ligi_cuda_address data))                                                      \
    CALL(cuMemHostUnregister, (void *data))                                                        \
    CALL(cuMemHostGetDevicePointer, (ligi_cuda_address * data, void *host, unsigned flags))        \
    CALL(cuMemcpyAsync,                                                                            \
         (ligi_cuda_address to, ligi_cuda_address from, size_t bytes, void *stream))               \
    CALL(cuStreamQuery, (void *stream))                                                            \
    CALL(cuDeviceGetUuid, (void *uuid, int device))                                                \
    CALL(cuIpcGetMemHandle, (ligi_cuda_handle * handle, ligi_cuda_address data))                   \
    CALL(cuIpcOpenMemHandle, (ligi_cuda_address * data, ligi_cuda_handle handle, unsigned flags))  \
    CALL(cuIpcCloseMemHandle, (ligi_cuda_address data))                                            \
    CALL(cuModuleLoadDataEx,                                                                       \
         (void **module, const void *image, unsigned count, int *options, void **values))          \
    CALL(cuModuleUnload, (void *module))                                                           \
    CALL(cuModuleGetFunction, (void **function, void *module, const char *name))                   \
    CALL(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,       \
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,   \
                          void *stream, void **parameters, void **extra))                          \
    CALL(cuPointerGetAttribute, (void *value, int attribute, ligi_cuda_address data))              \
    CALL(cuGetErrorString, (int error, const char **text))

/* Calls of later drivers, NULL if missing. */
#define LIGI_CUDA_LATE_CALLS(CALL)                                                                 \
    CALL(cuStreamWriteValue64,                                                                     \
         (void *stream, ligi_cuda_address word, uint64_t value, unsigned flags))                   \
    CALL(cuStreamWriteValue32,                                                                     \
         (void *stream, ligi_cuda_address word, uint32_t value, unsigned flags))                   \
    CALL(cuStreamWaitValue64,                                                                      \
         (void *stream, ligi_cuda_address word, uint64_t value, unsigned flags))

#define LIGI_CUDA_MEMBER(name, parameters) int(*name) parameters;
typedef struct ligi_cuda_driver {
    LIGI_CUDA_CALLS(LIGI_CUDA_MEMBER)
    LIGI_CUDA_LATE_CALLS(LIGI_CUDA_MEMBER)
} ligi_cuda_driver;

/* The driver, loaded and initialized. LIG_E_UNSUPPORTED if it is not installed, is too old or does
 * not start; LIG_E_CLOSED in a child of a process that had loaded it, because CUDA does not survive
 * a fork. */
lig_status ligi_cuda_driver_get(const ligi_cuda_driver **driver);

/* Random bytes that identify this process. A process id does not: two containers can have the same
 * one. Fails as ligi_cuda_driver_get does. */
#define LIGI_CUDA_PROCESS_BYTES 16
lig_status ligi_cuda_process(uint8_t process[LIGI_CUDA_PROCESS_BYTES]);

/* lig_fail with ": <text of the driver's error>" appended. LIG_E_NOMEM for the driver's "out of
 * memory", LIG_E_IO for the others. */
lig_status ligi_cuda_fail(const ligi_cuda_driver *driver, int error, const char *format, ...)
    LIG_PRINTF(3, 4);

#endif
