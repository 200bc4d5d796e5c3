/* Which addresses may be used with and without a secret: beyond loopback TCP needs one. */
#ifndef LIGI_TCP_SECRET_RULE_H
#define LIGI_TCP_SECRET_RULE_H

#include "net/tcp/tcp_wire.h"

/* LIG_E_DENIED for listening on an address beyond loopback, or connecting to one, without a
 * secret. */
lig_status ligi_tcp_check_secret(const ligi_tcp *self, const ligi_tcp_address *address);

/* `reaches` of the transport (net/transport.h): whether a peer's address may be tried. */
int ligi_tcp_reaches(void *self, const char *address, int same_host);

#endif
