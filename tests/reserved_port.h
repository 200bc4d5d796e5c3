/* A loopback port for a listener that starts later: the socket is bound and not listened on, so that
 * others do not get the port and SO_REUSEADDR lets the listener have it. */
#ifndef RESERVED_PORT_H
#define RESERVED_PORT_H

#include "base/test.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

/* Fills `address` with "tcp://127.0.0.1:PORT"; returns the socket, which the caller closes. */
static inline int reserve_port(char address[64])
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof place;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(fd, (struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&place, &bytes), 0);
    snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(place.sin_port));
    return fd;
}

#endif
