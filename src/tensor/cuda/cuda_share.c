#include "tensor/cuda/cuda_share.h"

#include "base/error.h"
#include "tensor/cuda/cuda_device.h"

#include <errno.h>
#include <sys/mman.h>

enum { REGISTER_PORTABLE = 1, REGISTER_MAPPED = 2, LAZY_PEER_ACCESS = 1 };

lig_status ligi_cuda_alloc(int32_t device, uint64_t bytes, void **data)
{
    ligi_cuda_visit visit;
    ligi_cuda_address address = 0;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuMemAlloc(&address, bytes);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot allocate %llu bytes on CUDA device %d",
                              (unsigned long long)bytes, device);
    *data = (void *)(uintptr_t)address;
    return LIG_OK;
}

void ligi_cuda_free(int32_t device, void *data)
{
    ligi_cuda_visit visit;
    if (data == NULL || ligi_cuda_enter(device, &visit) != LIG_OK)
        return;
    visit.device->driver->cuMemFree((ligi_cuda_address)(uintptr_t)data);
    ligi_cuda_leave(&visit);
}

lig_status ligi_cuda_pin(int32_t device, uint64_t bytes, void **data)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = 0;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int failed = map == MAP_FAILED ? errno : 0;
    if (!failed) {
        /* The device may write at any time: a forked child must not share the pages. */
        madvise(map, bytes, MADV_DONTFORK);
        error = driver->cuMemHostRegister(map, bytes, REGISTER_PORTABLE | REGISTER_MAPPED);
        if (error != 0)
            munmap(map, bytes);
    }
    ligi_cuda_leave(&visit);
    if (failed)
        return ligi_fail_errno(failed, "cannot allocate %llu bytes for copies of CUDA device %d",
                               (unsigned long long)bytes, device);
    if (error != 0)
        return ligi_cuda_fail(driver, error,
                              "cannot pin %llu bytes of host memory for CUDA device %d",
                              (unsigned long long)bytes, device);
    *data = map;
    return LIG_OK;
}

void ligi_cuda_unpin(int32_t device, void *data, uint64_t bytes)
{
    ligi_cuda_visit visit;
    if (data == NULL)
        return;
    /* Memory that the driver does not release stays mapped: the device could still write to it. */
    if (ligi_cuda_enter(device, &visit) != LIG_OK)
        return;
    int error = visit.device->driver->cuMemHostUnregister(data);
    ligi_cuda_leave(&visit);
    if (error == 0)
        munmap(data, bytes);
}

lig_status ligi_cuda_pinned_address(int32_t device, void *data, uint64_t *address)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuMemHostGetDevicePointer(address, data, 0);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "CUDA device %d cannot use pinned host memory",
                              device);
    return LIG_OK;
}

lig_status ligi_cuda_export(int32_t device, const void *data, ligi_cuda_handle *handle)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuIpcGetMemHandle(handle, (ligi_cuda_address)(uintptr_t)data);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot share memory of CUDA device %d", device);
    return LIG_OK;
}

lig_status ligi_cuda_import(int32_t device, const ligi_cuda_handle *handle, void **data)
{
    ligi_cuda_visit visit;
    ligi_cuda_address address = 0;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuIpcOpenMemHandle(&address, *handle, LAZY_PEER_ACCESS);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot open a peer's memory of CUDA device %d",
                              device);
    *data = (void *)(uintptr_t)address;
    return LIG_OK;
}

void ligi_cuda_import_close(int32_t device, void *data)
{
    ligi_cuda_visit visit;
    if (data == NULL || ligi_cuda_enter(device, &visit) != LIG_OK)
        return;
    visit.device->driver->cuIpcCloseMemHandle((ligi_cuda_address)(uintptr_t)data);
    ligi_cuda_leave(&visit);
}

lig_status ligi_cuda_uuid(int32_t device, uint8_t uuid[16])
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuDeviceGetUuid(uuid, visit.device->handle);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot identify CUDA device %d", device);
    return LIG_OK;
}
