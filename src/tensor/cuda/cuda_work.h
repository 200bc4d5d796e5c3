/* Work on streams of a device, the caller's or the library's own: copies between memory of any
 * kind, and values that streams write and wait for. A `stream` is a CUstream, NULL the legacy
 * default one. Everything here is **shared**. */
#ifndef LIGI_CUDA_WORK_H
#define LIGI_CUDA_WORK_H

#include <ligament/base.h>

/* A non-blocking stream. */
lig_status ligi_cuda_stream_create(int32_t device, void **stream);
/* Waits for what is queued on it. */
void ligi_cuda_stream_destroy(int32_t device, void *stream);

/* 1 while work on the stream is recorded into a graph instead of being run. */
lig_status ligi_cuda_capturing(int32_t device, void *stream, int *capturing);

typedef struct ligi_cuda_move {
    void *to;
    const void *from;
    uint64_t bytes;
} ligi_cuda_move;

/* Queues copies. From host memory that is not pinned the bytes have been read on return. After a
 * failure some may be queued. */
lig_status ligi_cuda_copy(int32_t device, void *stream, const ligi_cuda_move *moves, size_t count);

typedef struct ligi_cuda_batch { /* copies, and a word that is written after them */
    const ligi_cuda_move *moves;
    size_t count;
    uint64_t word, value;
    size_t queued; /* copies that were queued, also after a failure */
} ligi_cuda_batch;

/* Queue: the word becomes `value` once everything before it on the stream, and the copies, have
 * ended; later work on the stream runs once the word is at least `least`. The word is in pinned
 * memory (ligi_cuda_pin), at this address for the device. LIG_E_UNSUPPORTED with a driver older
 * than CUDA 11.7. */
lig_status ligi_cuda_copy_and_write(int32_t device, void *stream, ligi_cuda_batch *batch);
lig_status ligi_cuda_write_word(int32_t device, void *stream, uint64_t word, uint64_t value);
/* Writes the lower half of the word: the upper one keeps what the host has written. */
lig_status ligi_cuda_write_half(int32_t device, void *stream, uint64_t word, uint32_t value);
lig_status ligi_cuda_await_word(int32_t device, void *stream, uint64_t word, uint64_t least);

/* Waits for all that is queued on the stream. */
lig_status ligi_cuda_synchronize(int32_t device, void *stream);
/* The failure of the device: after a failed kernel no work on it completes any more. */
lig_status ligi_cuda_alive(int32_t device, void *stream);

#endif
