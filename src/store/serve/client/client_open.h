/* Opens ligament://host:port as a store. */
#ifndef LIGI_CLIENT_OPEN_H
#define LIGI_CLIENT_OPEN_H

#include "base/uri/uri.h"
#include "store/handle.h"

#define LIGI_CLIENT_SCHEME "ligament"

/* Fills volume, remote, uuid, secret and mode of a store whose uri and mode are set. */
lig_status ligi_client_open(lig_store *store, const ligi_uri *uri);
/* Ends the connection: the volume's close. */
void ligi_client_destroy(void *client);

#endif
