/* ucx://host:port as a socket address and back. */
#ifndef LIGI_UCX_ADDRESS_H
#define LIGI_UCX_ADDRESS_H

#include <sys/socket.h>

#include "net/transport.h"

typedef struct ligi_ucx_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} ligi_ucx_address;

/* The host is an IPv4 address, an IPv6 address in brackets, or empty (127.0.0.1); the port may be
 * omitted (0). Names are not resolved, because a resolver may block. */
lig_status ligi_ucx_address_parse(const ligi_host *host, const ligi_uri *uri,
                                  ligi_ucx_address *address);
/* "ucx://127.0.0.1:7000" */
void ligi_ucx_address_print(const struct sockaddr_storage *storage,
                            char text[LIGI_ADDRESS_BYTES_MAX]);
int ligi_ucx_address_loopback(const ligi_ucx_address *address);

#endif
