#include "tensor/cuda/cuda_hash.h"

#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_ring.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* block_hashes.ptx, which the build converts to an array; NUL-terminated. */
extern const char ligi_block_hashes_ptx[];

#define BATCH 65536 /* blocks of one launch */
#define WARPS 4     /* of a thread block; each hashes one block */
#define SECRET_ROOM 256
#define HASHES_AT (SECRET_ROOM + BATCH * sizeof(ligi_cuda_block))
#define SCRATCH_BYTES (HASHES_AT + BATCH * sizeof(uint64_t))

static_assert(SCRATCH_BYTES <= LIGI_CUDA_SLOT_BYTES, "the scratch memory has the layout of a slot");

typedef struct hasher {
    int tried;
    void *kernel; /* NULL: the driver rejected it */
    ligi_cuda_address scratch;
} hasher;

/* Modules belong to the primary contexts, which are kept as well. */
static struct {
    pthread_mutex_t lock; /* also guards the scratch memory while it is in use */
    hasher of[LIGI_CUDA_DEVICES];
} hashers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A driver without a compiler, or older than the PTX, rejects the module; the host computes the
 * hashes then. */
static void load(hasher *self, const ligi_cuda_driver *driver)
{
    void *module, *kernel;
    ligi_cuda_address scratch;
    self->tried = 1;
    if (driver->cuModuleLoadDataEx(&module, ligi_block_hashes_ptx, 0, NULL, NULL) != 0)
        return;
    if (driver->cuModuleGetFunction(&kernel, module, "ligament_hash_blocks") != 0 ||
        driver->cuMemAlloc(&scratch, SCRATCH_BYTES) != 0) {
        driver->cuModuleUnload(module);
        return;
    }
    self->kernel = kernel;
    self->scratch = scratch;
}

int ligi_cuda_hash_usable(int32_t device)
{
    ligi_cuda_visit visit;
    if (ligi_cuda_enter(device, &visit) != LIG_OK)
        return 0;
    pthread_mutex_lock(&hashers.lock);
    hasher *self = &hashers.of[device];
    if (!self->tried)
        load(self, visit.device->driver);
    int usable = self->kernel != NULL;
    pthread_mutex_unlock(&hashers.lock);
    ligi_cuda_leave(&visit);
    return usable;
}

/* Queues the copy to the device, the kernel and the copy back. The kernel reads the table that the
 * copy writes, so all three are on one stream. */
static int queue_batch(const hasher *self, const ligi_cuda_device *device, ligi_cuda_slot *slot,
                       unsigned count)
{
    const ligi_cuda_driver *driver = device->driver;
    ligi_cuda_address secret = self->scratch, blocks = secret + SECRET_ROOM;
    ligi_cuda_address hashes = secret + HASHES_AT;
    void *parameters[] = {&secret, &blocks, &hashes, &count};
    size_t table = SECRET_ROOM + count * sizeof(ligi_cuda_block);
    int error = driver->cuMemcpyHtoDAsync(secret, slot->data, table, device->from_device);
    slot->queued = error == 0;
    if (error == 0)
        error = driver->cuLaunchKernel(self->kernel, (count + WARPS - 1) / WARPS, 1, 1, 32 * WARPS,
                                       1, 1, 0, device->from_device, parameters, NULL);
    if (error == 0)
        error = driver->cuMemcpyDtoHAsync(slot->data + HASHES_AT, hashes, count * sizeof(uint64_t),
                                          device->from_device);
    if (error == 0)
        error = driver->cuEventRecord(device->events[slot->number], device->from_device);
    if (error == 0)
        error = driver->cuEventSynchronize(device->events[slot->number]);
    return error;
}

static lig_status hash_batch(const ligi_cuda_device *device, const void *secret,
                             const ligi_cuda_block *blocks, size_t count, uint64_t *hashes)
{
    ligi_cuda_slot slot;
    LIG_TRY(ligi_cuda_slot_take(device->number, 1, &slot));
    memcpy(slot.data, secret, LIG_SECRET_BYTES);
    memcpy(slot.data + SECRET_ROOM, blocks, count * sizeof *blocks);
    pthread_mutex_lock(&hashers.lock);
    int error = queue_batch(&hashers.of[device->number], device, &slot, (unsigned)count);
    pthread_mutex_unlock(&hashers.lock);
    if (error == 0) {
        memcpy(hashes, slot.data + HASHES_AT, count * sizeof *hashes);
        slot.queued = 0;
    }
    ligi_cuda_slot_drop(&slot);
    if (error != 0)
        return ligi_cuda_fail(device->driver, error, "cannot hash memory of CUDA device %d",
                              device->number);
    return LIG_OK;
}

lig_status ligi_cuda_hash(int32_t device, const void *secret, const ligi_cuda_block *blocks,
                          size_t count, uint64_t *hashes)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    lig_status status = LIG_OK;
    for (size_t at = 0; at < count && status == LIG_OK; at += BATCH) {
        size_t batch = count - at < BATCH ? count - at : BATCH;
        status = hash_batch(visit.device, secret, blocks + at, batch, hashes + at);
    }
    ligi_cuda_leave(&visit);
    return status;
}
