/* The device side of a server's request: tensors that arrive in device memory, or are registered or
 * answered from there. A tensor in an arena that its worker lent is used in place; a payload for
 * device memory lands in pinned memory and is copied by a stream before the request is queued. A
 * response is copied by the caller's stream, to the worker's arena or to pinned memory, and sent
 * when that has ended. */
#ifndef LIGI_JOB_COPIES_H
#define LIGI_JOB_COPIES_H

#include "mesh/device/mesh_device.h"
#include "mesh/mesh.h"

typedef struct ligi_job_copies {
    ligi_courier_task task;
    ligi_party *party;
    ligi_job *job;
    ligi_arena_chunk *landed;         /* pinned: the payload of tensors for device memory */
    ligi_arena_chunk *answer;         /* pinned: the response's */
    struct ligi_captured_slot *graph; /* that responds, or NULL */
    ligi_imports *imports;            /* that the response is copied to, until it is */
    ligi_failure failure;             /* of a response that is partly queued: it is refused */
    ligi_cuda_move *list;
    size_t count, room;
    uint64_t bytes; /* counted for the worker's limit */
} ligi_job_copies;

/* 1 if the request needs copies: a tensor is in device memory, or is registered there. */
int ligi_job_needs_copies(const lig_mesh *mesh, const ligi_job *job);

/* As ligi_mesh_receive_size and _place in one: takes all memory of the request, and fills *landing.
 * LIG_E_LIMIT, LIG_E_NOMEM: the request is refused; LIG_E_CORRUPT: the link ends. */
lig_status ligi_job_receive(ligi_party *party, ligi_job *job, ligi_landing *landing);
/* The payload has been received: queues the copies. *pending is 0 if there are none; else `done`
 * follows (ligi_server_copied). */
lig_status ligi_job_raise(ligi_party *party, ligi_job *job, int *pending);

/* 1 if the response needs copies of a device. */
int ligi_job_answer_needs_copies(const ligi_job *job, const lig_tensor *tensors);
/* Queues them on the stream and fills job->iov and job->entries; `done` follows. Strided tensors of
 * host memory are packed at `packed`. A failure with job->copying set: some copies are queued on a
 * stream of the caller, and `done` follows with the failure. */
lig_status ligi_job_answer(ligi_party *party, ligi_job *job, const lig_tensor *tensors,
                           ligi_on_stream on, uint8_t *packed);

#endif
