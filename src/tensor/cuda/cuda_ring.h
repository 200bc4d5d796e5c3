/* Pinned host memory between files and devices: one ring of slots a process, for all devices, made
 * at the first copy. Everything here is **shared**; a slot belongs to the thread that has taken it.
 *
 * A thread that holds a slot takes more only without waiting: so there is always one that ends. */
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

/* Takes a slot for copies to or from `device`. When all are taken it waits for one, or, unless
 * `wait` is set, fills *slot with one whose data is NULL. */
lig_status ligi_cuda_slot_take(int32_t device, int wait, ligi_cuda_slot *slot);

/* Queues a copy of `bytes` bytes at `from`, which lie in the slot. */
lig_status ligi_cuda_slot_put(ligi_cuda_slot *slot, void *to, const void *from, size_t bytes);
/* Gives the slot back; it is reused when the queued copies have ended. After a failure they have
 * ended. */
lig_status ligi_cuda_slot_send(ligi_cuda_slot *slot);

/* Queues a copy of `bytes` bytes into the slot. */
lig_status ligi_cuda_slot_get(ligi_cuda_slot *slot, const void *from, size_t bytes);
/* Waits until they are there. */
lig_status ligi_cuda_slot_wait(ligi_cuda_slot *slot);

/* Gives the slot back after waiting for what is queued, whatever becomes of it. Without data:
 * nothing to do. */
void ligi_cuda_slot_drop(ligi_cuda_slot *slot);

#endif
