/* One connection of the tcp transport. */
#ifndef LIGI_TCP_WIRE_H
#define LIGI_TCP_WIRE_H

#include "net/frame/frame.h"
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
    int broken;              /* writing failed: reading returns the reason */
    int hungry;              /* there is more to read that epoll does not report */
    int64_t linger_ns;

    ligi_tcp_step step;
    uint8_t *buffer; /* allocated at the first byte */
    size_t capacity, start, end;
    ligi_frame_prefix prefix;
    struct iovec *iov; /* destination of the payload; NULL: discarded */
    size_t count;
    uint64_t left; /* of the payload */
};

struct ligi_tcp {
    ligi_net *net;
    ligi_tls_keys *keys;
    uint32_t binding; /* of the endpoint, when the keys were derived */
    struct ligi_tcp_listener *listeners;
    ligi_tcp_wire *wires, *lingering;
    size_t lingering_count;
    ligi_tcp_wire *hot; /* the wire that is polled while spinning */
    int hot_misses;
    ligi_tcp_wire *full; /* the wire whose socket was full last: retried while spinning */
    size_t hungry_count;
    int spare; /* a spare descriptor for accepting and closing when descriptors run out */
    int64_t resume_ns;
};

#endif
