/* The connection of a client: connecting, liveness, reconnecting. */
#ifndef LIGI_CLIENT_CONNECT_H
#define LIGI_CLIENT_CONNECT_H

#include "store/serve/client/client.h"

extern const ligi_net_hooks ligi_client_hooks;

/* Connects unless connected. The lock is not held. LIG_E_CLOSED: interrupted. */
lig_status ligi_client_connect(ligi_client *client, const ligi_interrupt *interrupt);
/* Retries until it succeeds, `retry` seconds have passed since `begin_ns`, or the server
 * refuses. */
lig_status ligi_client_reconnect(ligi_client *client, int64_t begin_ns,
                                 const ligi_interrupt *interrupt);

/* With the lock. Ends the connection: every request in progress fails. */
void ligi_client_drop(ligi_client *client, const char *sentence);
/* With the lock, while it is connected. */
void ligi_client_ping(ligi_client *client);

#endif
