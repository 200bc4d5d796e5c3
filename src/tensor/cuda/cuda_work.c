#include "tensor/cuda/cuda_work.h"

#include "base/error.h"
#include "tensor/cuda/cuda_device.h"

enum { STREAM_NON_BLOCKING = 1, NOT_READY = 600, AT_LEAST = 0 };

lig_status ligi_cuda_stream_create(int32_t device, void **stream)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamCreate(stream, STREAM_NON_BLOCKING);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot create a stream on CUDA device %d", device);
    return LIG_OK;
}

void ligi_cuda_stream_destroy(int32_t device, void *stream)
{
    ligi_cuda_visit visit;
    if (stream == NULL || ligi_cuda_enter(device, &visit) != LIG_OK)
        return;
    visit.device->driver->cuStreamSynchronize(stream);
    visit.device->driver->cuStreamDestroy(stream);
    ligi_cuda_leave(&visit);
}

lig_status ligi_cuda_capturing(int32_t device, void *stream, int *capturing)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamIsCapturing(stream, capturing);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot use a stream of CUDA device %d", device);
    return LIG_OK;
}

static lig_status no_words(void)
{
    return lig_fail(LIG_E_UNSUPPORTED, "the driver is older than CUDA 11.7, whose streams cannot "
                                       "signal: update it, or pass tensors in host memory");
}

static int copy_all(const ligi_cuda_driver *driver, void *stream, const ligi_cuda_move *moves,
                    size_t count, size_t *queued)
{
    int error = 0;
    for (*queued = 0; *queued < count; ++*queued) {
        const ligi_cuda_move *move = &moves[*queued];
        error =
            driver->cuMemcpyAsync((ligi_cuda_address)(uintptr_t)move->to,
                                  (ligi_cuda_address)(uintptr_t)move->from, move->bytes, stream);
        if (error != 0)
            break;
    }
    return error;
}

lig_status ligi_cuda_copy(int32_t device, void *stream, const ligi_cuda_move *moves, size_t count)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    size_t queued;
    int error = copy_all(driver, stream, moves, count, &queued);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot copy on CUDA device %d", device);
    return LIG_OK;
}

/* One visit: a driver call takes microseconds, and entering and leaving are four. */
lig_status ligi_cuda_copy_and_write(int32_t device, void *stream, ligi_cuda_batch *batch)
{
    ligi_cuda_visit visit;
    batch->queued = 0;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int known = driver->cuStreamWriteValue64 != NULL;
    int copied = known ? copy_all(driver, stream, batch->moves, batch->count, &batch->queued) : 0;
    int error = copied;
    if (known && copied == 0)
        error = driver->cuStreamWriteValue64(stream, batch->word, batch->value, 0);
    ligi_cuda_leave(&visit);
    if (!known)
        return no_words();
    if (error != 0)
        return ligi_cuda_fail(driver, error,
                              copied ? "cannot copy on CUDA device %d"
                                     : "a stream of CUDA device %d cannot signal",
                              device);
    return LIG_OK;
}

lig_status ligi_cuda_write_word(int32_t device, void *stream, uint64_t word, uint64_t value)
{
    ligi_cuda_batch batch = {.word = word, .value = value};
    return ligi_cuda_copy_and_write(device, stream, &batch);
}

lig_status ligi_cuda_write_half(int32_t device, void *stream, uint64_t word, uint32_t value)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int known = driver->cuStreamWriteValue32 != NULL;
    int error = known ? driver->cuStreamWriteValue32(stream, word, value, 0) : 0;
    ligi_cuda_leave(&visit);
    if (!known)
        return no_words();
    if (error != 0)
        return ligi_cuda_fail(driver, error, "a stream of CUDA device %d cannot signal", device);
    return LIG_OK;
}

lig_status ligi_cuda_await_word(int32_t device, void *stream, uint64_t word, uint64_t least)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int known = driver->cuStreamWaitValue64 != NULL;
    int error = known ? driver->cuStreamWaitValue64(stream, word, least, AT_LEAST) : 0;
    ligi_cuda_leave(&visit);
    if (!known)
        return no_words();
    if (error != 0)
        return ligi_cuda_fail(driver, error, "a stream of CUDA device %d cannot wait", device);
    return LIG_OK;
}

lig_status ligi_cuda_synchronize(int32_t device, void *stream)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamSynchronize(stream);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "a copy on CUDA device %d failed", device);
    return LIG_OK;
}

lig_status ligi_cuda_alive(int32_t device, void *stream)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuStreamQuery(stream);
    ligi_cuda_leave(&visit);
    if (error != 0 && error != NOT_READY)
        return ligi_cuda_fail(driver, error, "CUDA device %d has failed", device);
    return LIG_OK;
}
