/* Which addresses may be used with and without a secret: beyond loopback TCP needs one. */
#ifndef LIGI_TCP_SECRET_RULE_H
#define LIGI_TCP_SECRET_RULE_H

#include "net/tcp/tcp_wire.h"

/* DENIED for listening at, or connecting to, an address of another host without a secret. */
lig_status ligi_tcp_check_secret(const ligi_tcp *self, const ligi_tcp_address *address);

/* `reaches` of the transport (net/transport.h): whether a peer's address is worth a try. */
int ligi_tcp_reaches(void *self, const char *address, int same_host);

#endif
