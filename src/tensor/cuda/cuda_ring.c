#include "tensor/cuda/cuda_ring.h"

#include "base/error.h"
#include "tensor/cuda/cuda_device.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define RING_BYTES (LIGI_CUDA_SLOTS * LIGI_CUDA_SLOT_BYTES)
#define MAP_BYTES (RING_BYTES + LIGI_CUDA_SLOT_BYTES) /* room for alignment to a huge page */
#define REGISTER_PORTABLE 1u                          /* pinned for every context */

typedef enum slot_state { FREE, TAKEN, SENT } slot_state;

/* Pinning takes a host-wide lock of the driver, so it is done once and for few bytes. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    uint8_t *base; /* NULL: not made yet */
    slot_state states[LIGI_CUDA_SLOTS];
    uint64_t sent[LIGI_CUDA_SLOTS];   /* when, by `clock` */
    int32_t devices[LIGI_CUDA_SLOTS]; /* where to */
    uint64_t clock;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

/* The pages are populated first, as huge pages if available: pinning them one by one would take ten
 * times as long. */
static lig_status ring_create(const ligi_cuda_device *device)
{
    uint8_t *map =
        mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ligi_fail_errno(errno, "cannot allocate %llu bytes for copies to CUDA devices",
                               (unsigned long long)MAP_BYTES);
    uint64_t past = (uint64_t)(uintptr_t)map % LIGI_CUDA_SLOT_BYTES;
    uint8_t *base = map + (past ? LIGI_CUDA_SLOT_BYTES - past : 0);
    madvise(base, RING_BYTES, MADV_HUGEPAGE);
    /* A device may write into these pages at any time: a forked child must not share them. */
    madvise(map, MAP_BYTES, MADV_DONTFORK);
    memset(base, 0, RING_BYTES);
    int error = device->driver->cuMemHostRegister(base, RING_BYTES, REGISTER_PORTABLE);
    if (error != 0) {
        munmap(map, MAP_BYTES);
        return ligi_cuda_fail(device->driver, error,
                              "cannot pin %llu bytes of host memory for CUDA device %d",
                              (unsigned long long)RING_BYTES, device->number);
    }
    ring.base = base;
    return LIG_OK;
}

static int find_free(void)
{
    for (int i = 0; i < LIGI_CUDA_SLOTS; i++)
        if (ring.states[i] == FREE)
            return i;
    return -1;
}

static int find_sent_first(void)
{
    int first = -1;
    for (int i = 0; i < LIGI_CUDA_SLOTS; i++)
        if (ring.states[i] == SENT && (first < 0 || ring.sent[i] < ring.sent[first]))
            first = i;
    return first;
}

static void give_back(int number, slot_state state)
{
    pthread_mutex_lock(&ring.lock);
    ring.states[number] = state;
    ring.sent[number] = ++ring.clock;
    pthread_cond_signal(&ring.freed);
    pthread_mutex_unlock(&ring.lock);
}

/* Waits for the copies from a slot that was sent and has just been taken. A failed device has ended
 * them and reports the failure to the thread that queued them; the slot can be reused. */
static void await_sent(const ligi_cuda_device *asking, int32_t device, int number)
{
    ligi_cuda_visit visit;
    if (device == asking->number) {
        asking->driver->cuEventSynchronize(asking->events[number]);
        return;
    }
    if (ligi_cuda_enter(device, &visit) != LIG_OK)
        return;
    visit.device->driver->cuEventSynchronize(visit.device->events[number]);
    ligi_cuda_leave(&visit);
}

/* A slot's number, or -1: all are taken. */
static int take_any(const ligi_cuda_device *device, int wait)
{
    pthread_mutex_lock(&ring.lock);
    int number, was_sent = 0;
    while ((number = find_free()) < 0) {
        if ((number = find_sent_first()) >= 0) {
            was_sent = 1;
            break;
        }
        if (!wait)
            break;
        pthread_cond_wait(&ring.freed, &ring.lock);
    }
    int32_t before = number < 0 ? 0 : ring.devices[number];
    if (number >= 0) {
        ring.states[number] = TAKEN;
        ring.devices[number] = device->number;
    }
    pthread_mutex_unlock(&ring.lock);
    if (was_sent)
        await_sent(device, before, number);
    return number;
}

static lig_status ring_open(const ligi_cuda_device *device)
{
    pthread_mutex_lock(&ring.lock);
    lig_status status = ring.base ? LIG_OK : ring_create(device);
    pthread_mutex_unlock(&ring.lock);
    return status;
}

lig_status ligi_cuda_slot_take(int32_t device, int wait, ligi_cuda_slot *slot)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(device, &visit));
    lig_status status = ring_open(visit.device);
    if (status == LIG_OK) {
        int number = take_any(visit.device, wait);
        *slot = (ligi_cuda_slot){.device = device, .number = number};
        if (number >= 0)
            slot->data = ring.base + (uint64_t)number * LIGI_CUDA_SLOT_BYTES;
    }
    ligi_cuda_leave(&visit);
    return status;
}

lig_status ligi_cuda_slot_put(ligi_cuda_slot *slot, void *to, const void *from, size_t bytes)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(slot->device, &visit));
    const ligi_cuda_driver *driver = visit.device->driver;
    int error = driver->cuMemcpyHtoDAsync((ligi_cuda_address)(uintptr_t)to, from, bytes,
                                          visit.device->to_device);
    slot->queued |= error == 0;
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(driver, error, "cannot copy %zu bytes to CUDA device %d", bytes,
                              slot->device);
    return LIG_OK;
}

lig_status ligi_cuda_slot_send(ligi_cuda_slot *slot)
{
    ligi_cuda_visit visit;
    lig_status status = ligi_cuda_enter(slot->device, &visit);
    if (status == LIG_OK) {
        const ligi_cuda_device *device = visit.device;
        int error = device->driver->cuEventRecord(device->events[slot->number], device->to_device);
        ligi_cuda_leave(&visit);
        if (error != 0)
            status = ligi_cuda_fail(device->driver, error, "cannot copy to CUDA device %d",
                                    slot->device);
    }
    if (status != LIG_OK) {
        ligi_cuda_slot_drop(slot);
        return status;
    }
    give_back(slot->number, SENT);
    slot->data = NULL;
    return LIG_OK;
}

lig_status ligi_cuda_slot_get(ligi_cuda_slot *slot, const void *from, size_t bytes)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(slot->device, &visit));
    const ligi_cuda_device *device = visit.device;
    int error = device->driver->cuMemcpyDtoHAsync(slot->data, (ligi_cuda_address)(uintptr_t)from,
                                                  bytes, device->from_device);
    slot->queued |= error == 0;
    if (error == 0)
        error = device->driver->cuEventRecord(device->events[slot->number], device->from_device);
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(device->driver, error, "cannot copy %zu bytes from CUDA device %d",
                              bytes, slot->device);
    return LIG_OK;
}

lig_status ligi_cuda_slot_wait(ligi_cuda_slot *slot)
{
    ligi_cuda_visit visit;
    LIG_TRY(ligi_cuda_enter(slot->device, &visit));
    const ligi_cuda_device *device = visit.device;
    int error = device->driver->cuEventSynchronize(device->events[slot->number]);
    slot->queued = error != 0;
    ligi_cuda_leave(&visit);
    if (error != 0)
        return ligi_cuda_fail(device->driver, error, "cannot copy from CUDA device %d",
                              slot->device);
    return LIG_OK;
}

void ligi_cuda_slot_drop(ligi_cuda_slot *slot)
{
    ligi_cuda_visit visit;
    if (slot->data == NULL)
        return;
    if (slot->queued && ligi_cuda_enter(slot->device, &visit) == LIG_OK) {
        /* Used if there is no event to wait for; covers copies in both directions. */
        visit.device->driver->cuStreamSynchronize(visit.device->to_device);
        visit.device->driver->cuStreamSynchronize(visit.device->from_device);
        ligi_cuda_leave(&visit);
    }
    give_back(slot->number, FREE);
    slot->data = NULL;
}
