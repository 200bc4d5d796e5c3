/* A worker's side: the hooks of its links. */
#ifndef LIGI_MESH_WORKER_H
#define LIGI_MESH_WORKER_H

#include "mesh/mesh.h"

lig_status ligi_worker_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing);
void ligi_worker_arrived(ligi_party *party, ligi_share *share);
void ligi_worker_sent(ligi_party *party, ligi_share *share);
void ligi_worker_lost(ligi_party *party);

#endif
