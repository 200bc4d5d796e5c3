/* How members of a mesh connect and leave. */
#ifndef LIGI_MESH_CONNECT_H
#define LIGI_MESH_CONNECT_H

#include "mesh/mesh.h"

lig_status ligi_mesh_listen(lig_mesh *mesh, const lig_mesh_options *options);
/* After the group is open: checks peers that connected early, connects, waits for all. */
lig_status ligi_mesh_connect(lig_mesh *mesh, int64_t timeout_ns);
/* Asks a peer for its clock; the answer also shows that it is alive. */
void ligi_mesh_ping(ligi_party *party);
void ligi_mesh_disconnect(lig_mesh *mesh, const char *reason);

#endif
