/* Models that the server holds for refs and matches of this client. They end with the session:
 * after a reconnect the client asks the server to hold the same models again. */
#ifndef LIGI_CLIENT_PINS_H
#define LIGI_CLIENT_PINS_H

#include "store/serve/client/client.h"

/* Registers a ref with this lease. If memory is exhausted, it is not held again after a
 * reconnect. */
void ligi_client_pins_add(ligi_client *client, ligi_lease lease, uint64_t model);
/* Removes a ref: *now is its lease on the server, whose number may be 0. 0: no such ref. */
int ligi_client_pins_remove(ligi_client *client, ligi_lease lease, ligi_lease *now);
/* Called on a new connection by the thread that made it. A model that was removed is skipped: its
 * refs fail when they are used. If the server does not answer for `liveness_ms`, the connection is
 * closed. */
void ligi_client_pins_renew(ligi_client *client, const ligi_interrupt *interrupt);

#endif
