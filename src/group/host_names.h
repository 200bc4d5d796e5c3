/* Hosts in addresses. */
#ifndef LIGI_HOST_NAMES_H
#define LIGI_HOST_NAMES_H

#include "group/group_state.h"

/* The digits of an address's port; "" where it has none. */
void ligi_group_port_of(const char *address, char *port, size_t port_bytes);
/* "tcp://10.0.0.1:7000" -> "10.0.0.1"; "" where there is no host, or one that means all. */
void ligi_group_host_of(const char *address, char *host, size_t host_bytes);
int ligi_group_is_name(const char *host); /* of a host: no number, and not localhost */
int ligi_group_is_loopback(const char *host);
/* 1 and fills `wide` when the address has the name of this machine and the machine takes that for
 * its loopback, as many do: who listens there is not found by others. `wide` is all interfaces at
 * the same port. Asks the resolver. */
int ligi_group_widen(const char *address, char wide[LIGI_ADDRESS_BYTES_MAX]);

/* A number by which others reach this machine: what `name` ("": none) stands for, else that of the
 * way out, else of the first interface; "" when there is nothing but loopback. Cards have numbers.
 * Asks the resolver. */
void ligi_group_own_number(const char *name, char *host, size_t host_bytes);

#endif
