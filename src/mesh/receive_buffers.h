/* Where a server stores each tensor of a push: in the buffer registered for (worker, key), in
 * memory that the worker lent (shared memory, no copy), or in the request's block. If an earlier
 * request still uses the registered buffer, the tensor waits in the block. So a second push under
 * the same key never changes the tensors of the first, regardless of how many are in flight. */
#ifndef LIGI_RECEIVE_BUFFERS_H
#define LIGI_RECEIVE_BUFFERS_H

#include "mesh/mesh.h"

/* First pass: *bytes is the memory needed for tensors that get neither a registered buffer nor lent
 * memory. LIG_E_LIMIT for a tensor that is larger than the buffer registered for it. */
lig_status ligi_mesh_receive_size(ligi_queue *queue, ligi_job *job, const ligi_arrival *arrival,
                                  uint64_t *bytes);
/* Second pass, with job->block: sets the tensors' memory and fills *landing. */
lig_status ligi_mesh_receive_place(lig_mesh *mesh, ligi_job *job, const ligi_arrival *arrival,
                                   ligi_landing *landing);

#endif
