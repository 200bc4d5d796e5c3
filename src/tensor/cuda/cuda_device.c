#include "tensor/cuda/cuda_device.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"

enum {
    STREAM_NON_BLOCKING = 1,
    EVENT_BLOCKING_SYNC = 1,
    EVENT_DISABLE_TIMING = 2,
    CAPTURE_RELAXED = 2,
    POINTER_DEVICE_ORDINAL = 9
};

/* Kept until the process exits: creating a context takes a second, and the primary one is shared
 * with the framework anyway. */
static struct {
    pthread_mutex_t lock;
    ligi_cuda_device *of[LIGI_CUDA_DEVICES]; /* NULL: not used yet */
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void destroy_parts(ligi_cuda_device *device)
{
    const ligi_cuda_driver *driver = device->driver;
    for (int i = 0; i < LIGI_CUDA_SLOTS; i++)
        if (device->events[i])
            driver->cuEventDestroy(device->events[i]);
    if (device->order)
        driver->cuEventDestroy(device->order);
    if (device->to_device)
        driver->cuStreamDestroy(device->to_device);
    if (device->from_device)
        driver->cuStreamDestroy(device->from_device);
}

static int create_parts(ligi_cuda_device *device)
{
    const ligi_cuda_driver *driver = device->driver;
    const unsigned quiet = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING;
    int error = driver->cuStreamCreate(&device->to_device, STREAM_NON_BLOCKING);
    if (error == 0)
        error = driver->cuStreamCreate(&device->from_device, STREAM_NON_BLOCKING);
    if (error == 0)
        error = driver->cuEventCreate(&device->order, EVENT_DISABLE_TIMING);
    for (int i = 0; i < LIGI_CUDA_SLOTS && error == 0; i++)
        error = driver->cuEventCreate(&device->events[i], quiet);
    return error;
}

/* The thread's capture mode is swapped before anything else: creating streams and events would
 * invalidate another thread's capture. */
static lig_status enter(ligi_cuda_device *device, ligi_cuda_visit *visit)
{
    const ligi_cuda_driver *driver = device->driver;
    int mode = CAPTURE_RELAXED;
    int error = driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot set the capture mode of a thread");
    error = driver->cuCtxPushCurrent(device->context);
    if (error != 0) {
        driver->cuThreadExchangeStreamCaptureMode(&mode);
        return ligi_cuda_fail(driver, error, "cannot use CUDA device %d", device->number);
    }
    *visit = (ligi_cuda_visit){device, mode};
    return LIG_OK;
}

void ligi_cuda_leave(ligi_cuda_visit *visit)
{
    const ligi_cuda_driver *driver = visit->device->driver;
    void *popped;
    driver->cuCtxPopCurrent(&popped);
    driver->cuThreadExchangeStreamCaptureMode(&visit->mode);
}

static lig_status open_parts(ligi_cuda_device *device)
{
    ligi_cuda_visit visit;
    LIG_TRY(enter(device, &visit));
    int error = create_parts(device);
    if (error != 0)
        destroy_parts(device);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(device->driver, error, "cannot create streams on CUDA device %d",
                              device->number);
    return LIG_OK;
}

static lig_status no_such_device(const ligi_cuda_driver *driver, int32_t number)
{
    int count = 0;
    driver->cuDeviceGetCount(&count);
    return lig_fail(LIG_E_UNSUPPORTED, "there is no CUDA device %d: this process sees %d", number,
                    count);
}

static lig_status device_open(const ligi_cuda_driver *driver, int32_t number,
                              ligi_cuda_device **out)
{
    ligi_cuda_device *made;
    int handle;
    if (number < 0 || number >= LIGI_CUDA_DEVICES || driver->cuDeviceGet(&handle, number) != 0)
        return no_such_device(driver, number);
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a CUDA device"));
    made->driver = driver;
    made->number = number;
    made->handle = handle;
    lig_status status = LIG_OK;
    int error = driver->cuDevicePrimaryCtxRetain(&made->context, handle);
    if (error != 0) {
        status = ligi_cuda_fail(driver, error, "cannot use CUDA device %d", number);
        goto memory;
    }
    status = open_parts(made);
    if (status != LIG_OK)
        goto context;
    *out = made;
    return LIG_OK;
context:
    driver->cuDevicePrimaryCtxRelease(handle);
memory:
    free(made);
    return status;
}

static lig_status device_get(int32_t number, ligi_cuda_device **out)
{
    const ligi_cuda_driver *driver;
    lig_status status = LIG_OK;
    LIG_TRY(ligi_cuda_driver_get(&driver));
    pthread_mutex_lock(&devices.lock);
    if (number < 0 || number >= LIGI_CUDA_DEVICES)
        status = no_such_device(driver, number);
    else if (devices.of[number] == NULL)
        status = device_open(driver, number, &devices.of[number]);
    if (status == LIG_OK)
        *out = devices.of[number];
    pthread_mutex_unlock(&devices.lock);
    return status;
}

lig_status ligi_cuda_usable(int32_t device)
{
    ligi_cuda_device *found;
    return device_get(device, &found);
}

lig_status ligi_cuda_enter(int32_t device, ligi_cuda_visit *visit)
{
    ligi_cuda_device *found;
    LIG_TRY(device_get(device, &found));
    return enter(found, visit);
}

static lig_status check_byte(const ligi_cuda_device *device, const void *data)
{
    int ordinal = -1;
    int error = device->driver->cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL,
                                                      (ligi_cuda_address)(uintptr_t)data);
    if (error != 0)
        return lig_fail(LIG_E_INVALID, "%p is not CUDA memory (it may have been freed)", data);
    if (ordinal != device->number)
        return lig_fail(LIG_E_INVALID, "%p is memory of CUDA device %d, not of device %d", data,
                        ordinal, device->number);
    return LIG_OK;
}

lig_status ligi_cuda_check(const void *data, uint64_t bytes, int32_t device)
{
    ligi_cuda_device *found;
    LIG_TRY(device_get(device, &found));
    if (bytes == 0)
        return LIG_OK;
    LIG_TRY(check_byte(found, data));
    return check_byte(found, (const char *)data + bytes - 1);
}

/* Recording an event again does not affect earlier waits, so one event is enough. The lock keeps
 * another thread from recording between this record and its waits. */
static int follow_stream(const ligi_cuda_device *device, void *stream)
{
    const ligi_cuda_driver *driver = device->driver;
    pthread_mutex_lock(&devices.lock);
    int error = driver->cuEventRecord(device->order, stream);
    if (error == 0)
        error = driver->cuStreamWaitEvent(device->to_device, device->order, 0);
    if (error == 0)
        error = driver->cuStreamWaitEvent(device->from_device, device->order, 0);
    pthread_mutex_unlock(&devices.lock);
    return error;
}

lig_status ligi_cuda_follow(int32_t device, void *stream)
{
    ligi_cuda_visit visit;
    int capturing = 0;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamIsCapturing(stream, &capturing);
    if (error == 0 && capturing == 0)
        error = follow_stream(visit.device, stream);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot wait for a stream of CUDA device %d", device);
    if (capturing)
        return lig_fail(LIG_E_INVALID,
                        "the current stream of CUDA device %d is being captured into a graph: save "
                        "and load outside of the capture",
                        device);
    return LIG_OK;
}

lig_status ligi_cuda_finish(int32_t device)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamSynchronize(visit.device->to_device);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot copy to CUDA device %d", device);
    return LIG_OK;
}
