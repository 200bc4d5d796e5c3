/* A server's side: the hooks of its links. */
#ifndef LIGI_MESH_SERVER_H
#define LIGI_MESH_SERVER_H

#include "mesh/mesh.h"

lig_status ligi_server_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing);
void ligi_server_arrived(ligi_party *party, ligi_job *job);
void ligi_server_sent(ligi_party *party, ligi_job *job, lig_status status);

#endif
