/* CUDA devices: the primary context of each, which the whole process shares, and the library's own
 * streams in it. Everything here is **shared**. */
#ifndef LIGI_CUDA_DEVICE_H
#define LIGI_CUDA_DEVICE_H

#include "tensor/cuda/cuda_driver.h"

#define LIGI_CUDA_DEVICES 64
#define LIGI_CUDA_SLOTS 32

typedef struct ligi_cuda_device {
    const ligi_cuda_driver *driver;
    int32_t number;
    int handle; /* CUdevice */
    void *context;
    /* Non-blocking: they do not wait for the legacy default stream, nor it for them. */
    void *to_device, *from_device;
    void *order;                   /* recorded on the streams of others */
    void *events[LIGI_CUDA_SLOTS]; /* the end of what was queued for a slot of the ring */
} ligi_cuda_device;

/* A thread's visit to a device: the device's context is current, and calls do not invalidate a
 * graph that another thread captures. */
typedef struct ligi_cuda_visit {
    ligi_cuda_device *device;
    int mode; /* the thread's own capture mode */
} ligi_cuda_visit;

/* LIG_E_UNSUPPORTED without a driver or without such a device. */
lig_status ligi_cuda_usable(int32_t device);

/* Fills *visit; ended by ligi_cuda_leave on the same thread. */
lig_status ligi_cuda_enter(int32_t device, ligi_cuda_visit *visit);
void ligi_cuda_leave(ligi_cuda_visit *visit);

/* LIG_E_INVALID unless both ends of `bytes` bytes at `data` are memory of this device. */
lig_status ligi_cuda_check(const void *data, uint64_t bytes, int32_t device);

/* Work that the library queues on the device from now on waits for the work that is now queued on
 * `stream` (a CUstream; 1 is the legacy default stream, as is NULL, 2 the calling thread's). Does
 * not wait itself. LIG_E_INVALID if the stream is being captured into a graph. */
lig_status ligi_cuda_follow(int32_t device, void *stream);

/* Waits until all copies to the device that were queued so far have ended. */
lig_status ligi_cuda_finish(int32_t device);

#endif
