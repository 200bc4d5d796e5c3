/* Streams bytes between host memory and any kind of memory, piece by piece, with several pieces in
 * flight. */
#ifndef LIGI_STAGING_H
#define LIGI_STAGING_H

#include "tensor/cuda/cuda_ring.h"

#include <ligament/tensor.h>

#define LIGI_STAGING_BYTES LIGI_CUDA_SLOT_BYTES /* the capacity of a staging buffer */

/* --- out of memory of any kind --- */

#define LIGI_DRAIN_AHEAD 6

/* Reads memory from its beginning to its end. */
typedef struct ligi_drain {
    const uint8_t *data;
    uint64_t bytes, queued; /* of it */
    uint16_t memory;
    int32_t device;
    ligi_cuda_slot slots[LIGI_DRAIN_AHEAD]; /* those in flight, oldest first */
    uint64_t sizes[LIGI_DRAIN_AHEAD];
    unsigned count;
    int shown; /* the oldest belongs to the caller until the next call */
} ligi_drain;

/* Only fills *drain; `data` is borrowed until ligi_drain_end. */
void ligi_drain_begin(ligi_drain *drain, const void *data, uint64_t bytes, uint16_t memory,
                      int32_t device);
/* The next bytes, in host memory, valid until the next call: at most `most` of host memory, at most
 * LIGI_STAGING_BYTES of a device. *bytes is 0 at the end. */
lig_status ligi_drain_next(ligi_drain *drain, uint64_t most, const uint8_t **data, uint64_t *bytes);
/* May be called after a failure and before the end. */
void ligi_drain_end(ligi_drain *drain);

/* --- into memory of any kind --- */

/* Copies `bytes` bytes from `from`, which may be reused at once. In device memory they are complete
 * only after ligi_staging_finish. */
lig_status ligi_staging_push(void *to, const void *from, uint64_t bytes, uint16_t memory,
                             int32_t device);
/* Waits for all pushed bytes. */
lig_status ligi_staging_finish(uint16_t memory, int32_t device);

/* A buffer from which a device copies directly: take, fill `data`, put pieces of it, send (or drop,
 * after a failure), finish. For device memory only. */
typedef ligi_cuda_slot ligi_staging_buffer;
/* Without `wait`, buffer->data is NULL if all are taken; see cuda_ring.h for who may wait. */
lig_status ligi_staging_take(ligi_staging_buffer *buffer, uint16_t memory, int32_t device,
                             int wait);
lig_status ligi_staging_put(ligi_staging_buffer *buffer, void *to, const void *from,
                            uint64_t bytes);
lig_status ligi_staging_send(ligi_staging_buffer *buffer);
void ligi_staging_drop(ligi_staging_buffer *buffer);

#endif
