/* What the server holds for refs and matches of this client. They end with the session: after a
 * reconnect the client asks the server to hold the same models again. */
#ifndef LIGI_CLIENT_PINS_H
#define LIGI_CLIENT_PINS_H

#include "store/serve/client/client.h"

/* A ref with this lease exists. Without memory for it nothing is held again. */
void ligi_client_pins_add(ligi_client *client, ligi_lease lease, uint64_t model);
/* It is released: *now is what the server holds for it, whose number may be 0. 0: no such ref. */
int ligi_client_pins_remove(ligi_client *client, ligi_lease lease, ligi_lease *now);
/* On a new connection, by the thread that made it. A model that is gone is left out: its refs fail
 * when they are used. A server that does not answer for `liveness_ms` loses the connection. */
void ligi_client_pins_renew(ligi_client *client, const ligi_interrupt *interrupt);

#endif
