/* Sending, and the life cycle of a connection. */
#ifndef LIGI_TCP_WRITE_H
#define LIGI_TCP_WRITE_H

#include "net/tcp/tcp_wire.h"

/* A wire on a connected or connecting socket, which it owns from here on (also on failure). */
lig_status ligi_tcp_wire_create(ligi_tcp *self, int fd, const char *peer, ligi_tls_channel_end end,
                                ligi_tcp_wire **wire);
void ligi_tcp_wire_destroy(ligi_tcp_wire *wire);
/* Starts watching the socket; the link is set. */
lig_status ligi_tcp_wire_start(ligi_tcp_wire *wire, ligi_link *link);

/* The entries of the transport's table. */
void ligi_tcp_wire_send(void *context);
void ligi_tcp_wire_drop(void *context, int graceful);
lig_status ligi_tcp_wire_local(void *context, char host[LIGI_ADDRESS_BYTES_MAX]);

/* Sends although the socket was full the last time. Returns 1 if something was sent. */
int ligi_tcp_wire_retry(ligi_tcp_wire *wire);
void ligi_tcp_wire_ready(void *context, uint32_t events);
/* Closes lingering wires whose time is over. */
void ligi_tcp_linger_look(ligi_tcp *self, int64_t now_ns);

#endif
