/* Receiving: prefix and head through a small buffer, payloads directly into their destination. */
#ifndef LIGI_TCP_READ_H
#define LIGI_TCP_READ_H

#include "net/tcp/tcp_wire.h"

void ligi_tcp_wire_divert(void *context);
/* Reads the available bytes. Returns 1 if there were any. */
int ligi_tcp_wire_read(ligi_tcp_wire *wire);

#endif
