/* Host names and numeric addresses. */
#ifndef LIGI_HOST_NAMES_H
#define LIGI_HOST_NAMES_H

#include "group/group_state.h"

/* The digits of an address's port; "" where it has none. */
void ligi_group_port_of(const char *address, char *port, size_t port_bytes);
/* "tcp://10.0.0.1:7000" -> "10.0.0.1"; "" if there is no host, or a wildcard. */
void ligi_group_host_of(const char *address, char *host, size_t host_bytes);
int ligi_group_is_name(const char *host); /* a name: neither numeric nor localhost */
int ligi_group_is_loopback(const char *host);
/* 1 and fills `wide` if the address contains the name of this machine and that resolves to loopback
 * here, as on many systems: others could not reach a listener there. `wide` is all interfaces at
 * the same port. Uses the resolver. */
int ligi_group_widen(const char *address, char wide[LIGI_ADDRESS_BYTES_MAX]);

/* A numeric address by which others reach this machine: that of `name` ("": none), else that of the
 * default route, else of the first interface; "" if there is only loopback. Uses the resolver. */
void ligi_group_own_number(const char *name, char *host, size_t host_bytes);

#endif
