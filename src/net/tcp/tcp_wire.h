/* One connection of the tcp transport. */
#ifndef LIGI_TCP_WIRE_H
#define LIGI_TCP_WIRE_H

#include "net/frame.h"
#include "net/tcp/stream.h"
#include "net/tcp/tcp_address.h"

typedef struct ligi_tcp ligi_tcp;
typedef struct ligi_tcp_wire ligi_tcp_wire;

typedef enum ligi_tcp_step { LIGI_TCP_PREFIX, LIGI_TCP_HEAD, LIGI_TCP_PAYLOAD } ligi_tcp_step;

struct ligi_tcp_wire {
    ligi_watch watch;
    ligi_tcp_wire *next, **at; /* in self->wires or self->lingering */
    ligi_tcp *self;
    ligi_link *link; /* NULL while lingering */
    ligi_stream stream;
    int fd;
    int connecting, blocked; /* blocked: waits for EPOLLOUT */
    int broken;              /* writing failed: reading tells why */
    int hungry;              /* there is more to read that epoll does not know of */
    int64_t linger_ns;

    ligi_tcp_step step;
    uint8_t *buffer; /* had when the first byte comes */
    size_t capacity, start, end;
    ligi_prefix prefix;
    struct iovec *iov; /* where the payload goes; NULL: nowhere */
    size_t count;
    uint64_t left; /* of the payload */
};

struct ligi_tcp {
    ligi_net *net;
    ligi_secure_keys *keys;
    uint32_t binding; /* of the endpoint, when the keys were derived */
    struct ligi_tcp_listener *listeners;
    ligi_tcp_wire *wires, *lingering;
    size_t lingering_count;
    ligi_tcp_wire *hot; /* the wire that is looked at while spinning */
    int hot_misses;
    ligi_tcp_wire *full; /* the wire whose socket was full last: tried again while spinning */
    size_t hungry_count;
    int spare; /* a descriptor to accept and refuse with when there are no others */
    int64_t resume_ns;
};

/* Derives keys anew when the endpoint has been bound to a group since. */
lig_status ligi_tcp_refresh_keys(ligi_tcp *self);
/* A wire on a connected or connecting socket, which it owns from here on (also on failure). `gcm`
 * is what encrypts where there is a secret. */
lig_status ligi_tcp_wire_create(ligi_tcp *self, int fd, const char *peer, ligi_secure_end end,
                                const struct ligi_gcm *gcm, ligi_tcp_wire **wire);
void ligi_tcp_wire_destroy(ligi_tcp_wire *wire);
/* Begins to watch; the link is known. */
lig_status ligi_tcp_wire_start(ligi_tcp_wire *wire, ligi_link *link);

/* The entries of the transport's table. */
void ligi_tcp_wire_send(void *context);
void ligi_tcp_wire_divert(void *context);
void ligi_tcp_wire_drop(void *context, int graceful);
lig_status ligi_tcp_wire_local(void *context, char host[LIGI_ADDRESS_BYTES_MAX]);

/* Sends though the socket was full when last asked. Returns 1 when something went. */
int ligi_tcp_wire_retry(ligi_tcp_wire *wire);
/* Reads what is there. Returns 1 when something came. */
int ligi_tcp_wire_read(ligi_tcp_wire *wire);
void ligi_tcp_wire_ready(void *context, uint32_t events);
/* Lingering wires that are past their time. */
void ligi_tcp_linger_look(ligi_tcp *self, int64_t now_ns);

#endif
