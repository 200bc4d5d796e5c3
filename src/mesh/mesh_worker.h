/* A worker's side: the hooks of its links. */
#ifndef LIGI_MESH_WORKER_H
#define LIGI_MESH_WORKER_H

#include "mesh/mesh.h"

lig_status ligi_worker_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing);
void ligi_worker_arrived(ligi_party *party, ligi_share *share);
void ligi_worker_sent(ligi_party *party, ligi_share *share);
void ligi_worker_lost(ligi_party *party);

/* After this nothing new is written to the request's tensors; it ends when no transfer uses them
 * any more. */
void ligi_worker_give_up(lig_mesh *mesh, ligi_request *request, lig_status status,
                         const char *sentence);

/* Of a request with tensors in device memory. Sends one server's message; on failure the request
 * has failed. */
void ligi_worker_send(lig_mesh *mesh, ligi_request *request, uint32_t server, ligi_send *send);
/* A request of a graph: it ends with ligi_captured_ended. */
lig_status ligi_worker_replay(lig_mesh *mesh, const lig_mesh_request *asked,
                              struct ligi_captured_slot *slot);
/* Its tensors have been copied and its messages sent, or it has failed. */
void ligi_worker_pushed(lig_mesh *mesh, ligi_request *request);
/* The pull tensors could not be filled. */
void ligi_worker_unfilled(ligi_request *request, lig_status status, const char *sentence);

#endif
