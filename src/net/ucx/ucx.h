/* The ucx transport: RDMA, CUDA and several rails through UCX's active messages. A shared object of
 * its own.
 *
 * Endpoints are made by socket address (client and server), because UCX then keeps a socket that
 * reports the death of a process immediately. UCX never reports a frozen peer: modules have
 * deadlines for that (ligi_link_heard_ns). */
#ifndef LIGI_UCX_H
#define LIGI_UCX_H

#include "net/ucx/ucx_address.h"
#include "net/ucx/ucx_calls.h"
#include "net/ucx/ucx_frame.h"
#include "net/ucx/ucx_proof.h"

typedef struct ligi_ucx_self ligi_ucx_self;
typedef struct ligi_ucx_wire ligi_ucx_wire;

/* A send in progress in UCX. */
typedef struct ligi_ucx_op {
    struct ligi_ucx_op *next; /* in self->free_ops */
    ligi_ucx_wire *wire;
    ligi_outgoing *out; /* NULL: no caller waits for it */
    uint64_t bytes;     /* of the core's memory that UCX reads */
    uint8_t header[LIGI_UCX_FRAME_BYTES +
                   LIGI_UCX_HEAD_INLINE]; /* UCX reads it until the send has ended */
} ligi_ucx_op;

/* A message that cannot be delivered yet: an earlier one is being received or has not arrived. */
typedef struct ligi_ucx_arrival {
    struct ligi_ucx_arrival *next; /* by number */
    ligi_ucx_message id;
    ligi_ucx_frame frame;
    int rendezvous; /* `data` is UCX's descriptor of memory that is still at the sender */
    int held;       /* `data` is UCX's and must be released */
    void *data;     /* else ours, by malloc */
    size_t data_bytes;
    const uint8_t *head; /* copied: the peer may be able to change UCX's memory */
} ligi_ucx_arrival;

struct ligi_ucx_wire {
    ligi_ucx_wire *next, **at; /* in self->wires: until UCX has released everything */
    ligi_ucx_wire *next_same;  /* in self->by_ep */
    ligi_ucx_self *self;
    ligi_link *link; /* NULL after drop */
    ucp_ep_h ep;
    int accepted;
    int bye;           /* the peer has sent a goodbye and waits for us to close */
    int broken;        /* UCX has reported an error */
    int due;           /* has received messages to process, or messages that were sent */
    int closing;       /* ucp_ep_close_nbx was called */
    int closed;        /* and has ended */
    int64_t linger_ns; /* after a goodbye: when waiting for the peer's end ends; 0: not waiting */
    size_t op_count;   /* sends in progress in UCX */
    uint64_t op_bytes; /* of the core's memory in them */
    int landing;       /* a receive in progress in UCX */
    int landed;        /* it has ended, and the core must be notified */

    ligi_ucx_proving proving;

    uint64_t sent, credit; /* numbers assigned; numbers that the peer had used up according to its
                            * last report */
    uint64_t taken, told;  /* numbers used up here; our last report */
    ligi_ucx_arrival *arrivals;
    size_t arrival_count;
    uint8_t *head; /* received separately, for the next message */
    size_t head_bytes;
};

typedef struct ligi_ucx_listener {
    struct ligi_ucx_listener *next;
    ligi_ucx_self *self;
    ucp_listener_h listener;
} ligi_ucx_listener;

typedef struct ligi_ucx_knock { /* a connecting peer, recorded by UCX's callback */
    struct ligi_ucx_knock *next;
    ligi_ucx_listener *listener;
    ucp_conn_request_h request;
} ligi_ucx_knock;

#define LIGI_UCX_BUCKETS 256u

struct ligi_ucx_self {
    ligi_net *net;
    const ligi_host *host;
    ligi_ucx_calls ucp;
    ucp_context_h context;
    ucp_worker_h worker;
    ligi_watch watch;
    ligi_ucx_listener *listeners;
    ligi_ucx_knock *knocks;
    size_t knock_count;
    ligi_ucx_wire *wires;
    size_t ending_count; /* of them dropped */
    ligi_ucx_wire *by_ep[LIGI_UCX_BUCKETS];
    ligi_ucx_op *free_ops;
    int quiet; /* inside drop or divert: callbacks only record */
    int any_due;
    unsigned refusals;                  /* consecutive refusals of UCX to be armed without events */
    uint8_t head[LIGI_UCX_HEAD_INLINE]; /* of the message that is being taken */
};

/* For threads that call UCX, or drive it, while another thread may sleep: UCX was armed for its
 * operations at that time. A send that did not fit, or a path that was not open, signals no
 * descriptor when it can continue: the sleeper must poll, and arm again. Not needed if the core
 * wakes the sleeper: after a connect, and after a poll with events. */
void ligi_ucx_stir(const ligi_ucx_self *self);

lig_status ligi_ucx_receive_start(ligi_ucx_self *self);

#endif
