/* tcp://host:port as a socket address and back. Pure, but for the resolver. */
#ifndef LIGI_TCP_ADDRESS_H
#define LIGI_TCP_ADDRESS_H

#include <sys/socket.h>

#include "net/transport.h"

typedef struct ligi_tcp_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} ligi_tcp_address;

/* The host is a name, an IPv4 address, an IPv6 address in brackets, or empty (127.0.0.1). With
 * `numbers` a name is refused instead of resolved. */
lig_status ligi_tcp_address_parse(const ligi_uri *uri, int numbers, ligi_tcp_address *address);
/* "tcp://127.0.0.1:7000" */
void ligi_tcp_address_print(const ligi_tcp_address *address, char text[LIGI_ADDRESS_BYTES_MAX]);
/* "127.0.0.1" */
void ligi_tcp_address_host(const ligi_tcp_address *address, char text[LIGI_ADDRESS_BYTES_MAX]);
int ligi_tcp_address_loopback(const ligi_tcp_address *address);

#endif
