/* A CUDA driver over host memory, for tests. Work on a stream runs when somebody waits for it and
 * not before, so that a missing wait shows as wrong bytes; only what precedes a word that a stream
 * writes (cuStreamWriteValue64) runs automatically. Breaches of the rules that the library
 * keeps (context current, relaxed capture mode, pinned memory, no copies on the legacy stream) are
 * collected in fake_cuda_breach. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_CUDA_DEVICES 2

/* "Device" memory. */
void *fake_cuda_alloc(size_t bytes, int device);
void fake_cuda_free(void *data);

/* The n-th call (from 1) of `name` from now on returns `error`; n = 0: none any more. */
void fake_cuda_fail(const char *name, unsigned n, int error);
/* Every call that reaches a device returns `error` from now on; 0: none. */
void fake_cuda_lose(int error);
/* cuGetProcAddress does not know this name. */
void fake_cuda_hide(const char *name);

/* Launches of kernels wait, as if the queue of every stream were full, until `on` is 0; after 20 s
 * that is a breach. */
void fake_cuda_full(int on);
/* Whether a launch waits. */
int fake_cuda_is_full(void);

/* How often a call was made. */
unsigned fake_cuda_calls(const char *name);
/* "" or the first breach. */
const char *fake_cuda_breach(void);
/* How many "contexts" (retained), "streams", "events", "modules", "pinned" ranges, "allocated" ones
 * (by cuMemAlloc) and "imported" ones there are. */
int fake_cuda_live(const char *kind);

/* A stream as a framework has it, and work on it: `bytes` bytes become `value`. NULL, 1 and 2 are
 * streams too. */
void *fake_cuda_stream(void);
void fake_cuda_fill(void *stream, void *data, int value, size_t bytes);
/* Waits for all that is queued on the stream. */
void fake_cuda_finish(void *stream);
/* The stream is being captured; what was queued meanwhile runs at each replay. */
void fake_cuda_capture(void *stream, int on);
void fake_cuda_replay(void *stream);

/* How long kernels that wait for flags continue after a peer was lost; 10 ms unless set. Forgets
 * earlier losses. */
void fake_cuda_grace(int64_t ns);
/* Whether a kernel that waits for a flag has seen a loss since then. */
int fake_cuda_loss_seen(void);

#endif
