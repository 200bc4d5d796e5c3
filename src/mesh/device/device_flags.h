/* Flags in pinned host memory that streams write, and wait for by a kernel: the numbers are in
 * device memory, which a stream's memory operations cannot compare. */
#ifndef LIGI_DEVICE_FLAGS_H
#define LIGI_DEVICE_FLAGS_H

#include "group/session/session.h"
#include "mesh/device/mesh_device.h"

/* With the lock: waits end while a required peer is missing, the first one a second after the loss.
 * Called when a peer leaves or joins; the state of `coming` (NULL: none) has not changed yet. */
void ligi_flags_update(lig_mesh *mesh, const ligi_session_peer *coming);
/* With the lock, before the peers are left: all waits end at once, also those still queued. */
void ligi_flags_close(ligi_mesh_device *device);

#endif
