/* Which key a connection is made with: that of the rendezvous, or that of a group's members. */
#ifndef LIGI_KEY_BINDING_H
#define LIGI_KEY_BINDING_H

#include "net/transport.h"

/* Derives that key from the secret, `group` of the options, and `context` (up to 64 bytes) for
 * connections that begin from now on. Once this has been called links of LIGI_SERVICE_GROUP take
 * LIGI_KEY_MEET and all others LIGI_KEY_MEMBER, at both ends. LIGI_KEY_MEET begins another group:
 * there is no LIGI_KEY_MEMBER any more. Without a secret nothing changes. */
lig_status ligi_net_bind(ligi_net *net, ligi_net_key key, const char *context);

/* The key that links of a service take, at both ends. */
ligi_net_key ligi_net_key_of(const ligi_net *net, ligi_service service);

/* What a key is derived from beside the secret; NULL: there is no such key yet. *binding (may be
 * NULL) is another number whenever one of them has changed. */
const char *ligi_net_context(const ligi_net *net, ligi_net_key key, uint32_t *binding);
/* The key that this end of a link connects with. */
ligi_net_key ligi_link_key(const ligi_link *link);
/* The peer that knocked has proved this key: before its hello is handed over. */
void ligi_link_proved(ligi_link *link, ligi_net_key key);

#endif
