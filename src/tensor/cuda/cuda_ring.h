/* Pinned host memory between files and devices: one ring of slots per process, for all devices,
 * created at the first copy. Everything here is **shared**; a slot belongs to the thread that has
 * taken it.
 *
 * A thread that holds a slot takes more only without waiting, so at least one thread always makes
 * progress. */
#ifndef LIGI_CUDA_RING_H
#define LIGI_CUDA_RING_H

#include <ligament/base.h>

#define LIGI_CUDA_SLOT_BYTES (UINT64_C(2) << 20)

typedef struct ligi_cuda_slot {
    uint8_t *data; /* LIGI_CUDA_SLOT_BYTES bytes; NULL: none */
    int32_t device;
    int number;
    int queued; /* copies to the device */
} ligi_cuda_slot;

/* Takes a slot for copies to or from `device`. If all are taken, it waits for one; without `wait`,
 * it fills *slot with one whose data is NULL. */
lig_status ligi_cuda_slot_take(int32_t device, int wait, ligi_cuda_slot *slot);

/* Queues a copy of `bytes` bytes at `from`, which is inside the slot. */
lig_status ligi_cuda_slot_put(ligi_cuda_slot *slot, void *to, const void *from, size_t bytes);
/* Returns the slot; it is reused when the queued copies have ended. After a failure they have
 * already ended. */
lig_status ligi_cuda_slot_send(ligi_cuda_slot *slot);

/* Queues a copy of `bytes` bytes into the slot. */
lig_status ligi_cuda_slot_get(ligi_cuda_slot *slot, const void *from, size_t bytes);
/* Waits until they have arrived. */
lig_status ligi_cuda_slot_wait(ligi_cuda_slot *slot);

/* Returns the slot after the queued copies have ended, even if they failed. No-op for a slot
 * without data. */
void ligi_cuda_slot_drop(ligi_cuda_slot *slot);

#endif
