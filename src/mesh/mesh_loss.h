/* When a peer is declared lost: its link has ended, the group reports it, or it is silent after the
 * coordinator was lost. Under the endpoint's lock. */
#ifndef LIGI_MESH_LOSS_H
#define LIGI_MESH_LOSS_H

#include "mesh/mesh.h"

/* Sets the state of a peer without a link, with the reason; its requests fail. */
void ligi_mesh_peer_gone(ligi_party *party, uint32_t state, const char *why);
/* Closes the link to a peer and sets its state (LIG_MESH_LOST or LIG_MESH_STOPPED). */
void ligi_mesh_peer_drop(ligi_party *party, uint32_t state, const char *why);
/* The group reports the peer lost: it is dropped after a delay, unless its link gives a reason. */
void ligi_mesh_peer_suspect(ligi_party *party, const char *sentence);
/* The `lost` and `tick` hooks of the links. */
void ligi_mesh_link_lost(void *context, ligi_link *link, lig_status status, const char *sentence);
int64_t ligi_mesh_loss_tick(void *context, int64_t now_ns);
/* This member was expelled: all peers are lost to it. */
void ligi_mesh_expelled(lig_mesh *mesh, const char *sentence);
/* The coordinator was lost: from now on this member detects silent peers itself. */
void ligi_mesh_orphaned(lig_mesh *mesh, const char *sentence);

#endif
