/* Which key authenticates a connection: that of the rendezvous, or that of a group's members. */
#ifndef LIGI_KEY_BINDING_H
#define LIGI_KEY_BINDING_H

#include "net/transport.h"

/* Derives that key from the secret, `group` of the options, and `context` (up to 64 bytes) for
 * connections made from now on. After the first call links of LIGI_SERVICE_GROUP use LIGI_KEY_MEET
 * and all others LIGI_KEY_MEMBER, at both ends. LIGI_KEY_MEET starts another group: it removes
 * LIGI_KEY_MEMBER. No-op without a secret. */
lig_status ligi_net_bind(ligi_net *net, ligi_net_key key, const char *context);

/* Replaces the endpoint's secret, which must exist, for connections made from now on. Copied. */
lig_status ligi_net_replace_secret(ligi_net *net, const void *secret, size_t bytes);

/* The key that links of a service use, at both ends. */
ligi_net_key ligi_net_key_of(const ligi_net *net, ligi_service service);

/* The input of a key in addition to the secret; NULL: there is no such key yet. *binding (may be
 * NULL) changes whenever one of them changes. */
const char *ligi_net_context(const ligi_net *net, ligi_net_key key, uint32_t *binding);
/* The key with which this end of a link connects. */
ligi_net_key ligi_link_key(const ligi_link *link);
/* A connecting peer has proved this key: called before its hello is delivered. */
void ligi_link_proved(ligi_link *link, ligi_net_key key);
/* Likewise: it proved a separate secret (ligi_net_accept_secrets). */
void ligi_link_set_tag(ligi_link *link, uint64_t tag);
/* That secret's tag; 0: the endpoint's own, or a transport that proves nothing (shm, inproc). */
uint64_t ligi_link_tag(const ligi_link *link);

#endif
