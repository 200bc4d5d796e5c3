/* The transport's state that its wires need. */
#ifndef LIGI_TCP_H
#define LIGI_TCP_H

#include "net/tcp/tcp_wire.h"

/* Derives the keys again if the endpoint has been bound to a group since. */
lig_status ligi_tcp_refresh_keys(ligi_tcp *self);

#endif
