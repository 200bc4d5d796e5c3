/* Calls of a mesh that are captured into a CUDA graph. When the word `turn` shows that no call is
 * in progress, the graph copies tensors into a chunk of the mesh's arena and writes the word; the
 * courier polls it, makes the call, and writes the word when the call has ended; a wait stops the
 * graph until then and copies the response. An earlier replay stops there, too: each slot has one
 * call in progress. The graph contains only constants, so it can be replayed. Each captured call
 * has a slot until the mesh is closed. */
#ifndef LIGI_GRAPH_SLOTS_H
#define LIGI_GRAPH_SLOTS_H

#include "mesh/device/mesh_device.h"

typedef struct ligi_captured_slot {
    struct ligi_captured_slot *next;
    ligi_mesh_device *device;
    uint64_t handler;
    uint64_t *turn;
    lig_tensor *tensors; /* pushed, then pulled ones; those of a device are in the chunk */
    uint64_t *keys;
    int64_t *shapes;
    lig_mesh_request asked;
    ligi_arena_chunk *chunk; /* NULL: nothing was copied */
    ligi_cuda_move *pulls;   /* out of the chunk */
    size_t pull_count;
    int in_graph; /* partly captured, and may be replayed */
    int responds; /* it is a response, to this worker */
    uint32_t worker;
} ligi_captured_slot;

/* 1 for the handler of a captured push_pull. */
int ligi_captured_is_handler(uint64_t handler);

/* With the lock, on a stream that is being captured. */
lig_status ligi_captured_push_pull(ligi_mesh_device *device, const lig_mesh_request *asked,
                                   void *stream, uint64_t *handler);
lig_status ligi_captured_wait(ligi_mesh_device *device, uint64_t handler, void *stream);
lig_status ligi_captured_respond(ligi_mesh_device *device, uint32_t worker,
                                 const lig_tensor *tensors, size_t count, void *stream);

/* A replayed request has ended: its graph continues. The next call returns a failure. */
void ligi_captured_ended(ligi_captured_slot *slot, lig_status status, const char *sentence);

/* With the lock: all replays continue from now on, also those that are still queued, and make no
 * calls. */
void ligi_captured_close(ligi_mesh_device *device);
/* After `close`, if there are slots. */
void ligi_captured_free_all(ligi_mesh_device *device);

#endif
