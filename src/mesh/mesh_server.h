/* A server's side: the hooks of its links, and declarations shared by its two files. */
#ifndef LIGI_MESH_SERVER_H
#define LIGI_MESH_SERVER_H

#include "mesh/mesh.h"

lig_status ligi_server_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing);
void ligi_server_arrived(ligi_party *party, ligi_job *job);
void ligi_server_lost(ligi_party *party);
/* Tells the worker that its request has failed. */
lig_status ligi_server_refuse(ligi_party *party, uint64_t serial, lig_status status,
                              const char *sentence);
/* The copies of a device, of the request or of its response, have ended. */
void ligi_server_copied(ligi_party *party, ligi_job *job, lig_status status);

#endif
