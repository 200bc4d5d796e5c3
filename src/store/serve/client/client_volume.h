/* The volume of a remote store: packs that are read through the server, and the calls for watches
 * and locks. Packs are never written through it, and it has no catalog: those members are NULL,
 * because the calls that would use them go through ligi_remote_ops. */
#ifndef LIGI_CLIENT_VOLUME_H
#define LIGI_CLIENT_VOLUME_H

#include "store/serve/client/client.h"

/* The volume's `self` is a ligi_client, which it closes. */
extern const lig_backend_ops ligi_client_backend;

#endif
