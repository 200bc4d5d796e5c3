/* A server's responses. */
#ifndef LIGI_MESH_RESPOND_H
#define LIGI_MESH_RESPOND_H

#include "mesh/mesh.h"

/* Of a link: the response is no longer borrowed. */
void ligi_server_sent(ligi_party *party, ligi_job *job, lig_status status);
/* A response of a graph, to the oldest request of its worker that has been taken and not answered.
 * ligi_captured_ended follows when the tensors have been copied. */
lig_status ligi_server_replay(lig_mesh *mesh, struct ligi_captured_slot *slot);
/* The request has been answered, or its worker is lost. */
void ligi_server_job_done(lig_mesh *mesh, ligi_job *job);
/* A response has been copied from its device: it is sent, or the request refused. */
void ligi_server_answer_copied(ligi_party *party, ligi_job *job, lig_status status);

#endif
