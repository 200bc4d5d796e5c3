/* The handshake between members of a mesh, and the handling of members that join or leave. */
#ifndef LIGI_MESH_CONNECT_H
#define LIGI_MESH_CONNECT_H

#include "mesh/mesh.h"

extern const ligi_session_ops ligi_mesh_session; /* the context is the mesh */

/* Identifies the clock of the stamps: the boot of the machine, and the time namespace. */
void ligi_mesh_clock_id(uint8_t id[16]);

#endif
