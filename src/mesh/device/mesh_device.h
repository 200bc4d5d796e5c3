/* A mesh's device: tensors in its memory are pushed, pulled and received. A member has one device,
 * that of the first such tensor, or the one that its options name. Guarded by the endpoint's lock,
 * except the heaps. */
#ifndef LIGI_MESH_DEVICE_H
#define LIGI_MESH_DEVICE_H

#include "mesh/buffers/bounded_pool.h"
#include "mesh/device/arena_heap.h"
#include "mesh/device/courier.h"

#include "base/error.h"
#include "tensor/cuda/cuda_work.h"

#include <ligament/mesh.h>

struct ligi_exchange;
struct ligi_captured_slot;

#define LIGI_WORDS 4096u /* tasks and graphs under way */

typedef struct ligi_mesh_device {
    lig_mesh *mesh;
    int32_t number;
    uint8_t uuid[16];
    void *in, *out;          /* streams of our own, for callers that name none */
    ligi_arena_heap *memory; /* of the device: what peers on this host open */
    ligi_arena_heap *pinned; /* of the host: for all other peers */
    ligi_block_pool *holds;  /* of the caller's memory */
    uint64_t *words;         /* pinned */
    uint64_t words_address;  /* for the device */
    uint32_t *free_words;    /* indices */
    uint32_t free_count;
    uint64_t ticket; /* values of words only grow */
    ligi_courier tasks;
    ligi_courier_order pushes; /* of a worker: messages leave in the order of push_pull */
    struct ligi_exchange *exchanges, *unused; /* of a worker: in use, and for reuse */
    ligi_failure failure; /* of work that no call waited for; the next call returns it */
    int stuck;            /* work has not ended, or graphs may be replayed: memory stays */
    struct ligi_captured_slot *slots; /* atomic; the latest first */
    uint64_t slot_count;
    /* Read by kernels that wait for flags (flag_kernels.cu). NULL: no flag was used. */
    uint64_t *flags_ended, *flags_passed;
    uint64_t flags_losses; /* of peers, since the first flag */
} ligi_mesh_device;

/* A stream of the caller; `given` 0: our own, for tensors that are ready. */
typedef struct ligi_on_stream {
    int given;
    void *stream;
    struct ligi_captured_slot *graph; /* the call is a graph's */
} ligi_on_stream;

/* The mesh's device, opened at the first call. LIG_E_INVALID if it has another one. */
lig_status ligi_mesh_device_open(lig_mesh *mesh, int32_t number, ligi_mesh_device **device);
/* *device: the mesh's if the stream is being captured into a graph, otherwise NULL. */
lig_status ligi_mesh_device_capturing(lig_mesh *mesh, int32_t number, ligi_on_stream on,
                                      ligi_mesh_device **device);
/* Ends its work, before the endpoint closes; without the lock. `fini` frees it afterwards. */
void ligi_mesh_device_stop(lig_mesh *mesh);
void ligi_mesh_device_fini(lig_mesh *mesh);

/* In every round of a thread that waits for the mesh, with the lock. */
void ligi_mesh_device_help(lig_mesh *mesh);

/* The device of the tensors in device memory; -1 if there are none, LIG_E_INVALID if they are on
 * several devices. */
lig_status ligi_mesh_device_of(const lig_tensor *tensors, size_t count, int32_t *number);

/* Queues copies on the stream, and ends `task` when they and all that was queued before them have
 * ended: `done` is called then. After a failure task->queued copies are queued. */
lig_status ligi_mesh_device_copy(ligi_mesh_device *device, void *stream,
                                 const ligi_cuda_move *moves, size_t count,
                                 ligi_courier_task *task);
/* Allocates and returns a word. LIG_E_LIMIT if all are in use. */
lig_status ligi_mesh_device_word(ligi_mesh_device *device, uint64_t **word);
void ligi_mesh_device_word_give(ligi_mesh_device *device, uint64_t *word);
/* Its address for streams. */
uint64_t ligi_mesh_device_address(const ligi_mesh_device *device, const uint64_t *word);

/* Returns, once, the failure of work that no call waited for. */
lig_status ligi_mesh_device_check(lig_mesh *mesh);
int ligi_mesh_device_failed(const lig_mesh *mesh); /* 1: there is one */
/* Records such a failure. */
void ligi_mesh_device_fail(ligi_mesh_device *device, lig_status status, const char *sentence);

#endif
