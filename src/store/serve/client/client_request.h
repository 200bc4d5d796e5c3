/* Requests and replies. Any number of threads may have requests in progress. */
#ifndef LIGI_CLIENT_REQUEST_H
#define LIGI_CLIENT_REQUEST_H

#include "store/serve/client/client.h"

/* A NEED of the server, passed from the hook to the thread that saves. */
typedef struct ligi_client_message {
    struct ligi_client_message *next;
    size_t bytes;
    uint8_t body[];
} ligi_client_message;

/* One request; zeroed except for the request itself. Must not move until it is finished. */
struct ligi_client_call {
    /* The request. ligi_client_call_fini frees the body; the data are borrowed. */
    uint16_t op;
    ligi_writer body;
    const struct iovec *data;
    size_t data_count;
    const struct iovec *into; /* destination of the reply's data; NULL: memory owned by the call */
    struct iovec *left;       /* the same number of entries: the data that have not arrived yet */
    size_t into_count;
    uint64_t into_bytes;             /* total of `into`: a reply has exactly that many */
    const ligi_interrupt *interrupt; /* NULL: never interrupted */
    int keeps_messages;              /* NEED and DONE are for this call */
    int64_t deadline_ns;             /* ends the connection if there is no reply by then; 0:
                                      * never */

    /* The reply, after LIG_OK. */
    const uint8_t *reply; /* the body */
    size_t reply_bytes;
    uint64_t version;

    /* Messages of the server while the request is in progress; under the lock of the net. */
    ligi_client_message *first, **last;
    uint64_t done_number; /* of the latest DONE */
    int accepted;         /* there was a DONE */

    /* Private. */
    ligi_client_call *next;
    uint64_t id, sequence, session;
    int64_t sent_ns;      /* 0: it was not sent */
    int64_t cancelled_ns; /* when the server was asked to cancel it; 0: it was not */
    uint64_t flight_bytes;
    int started, borrowed, done;
    int stopping; /* the server refused it because it is shutting down */
    ligi_failure failure;
    struct iovec landing;
    ligi_client_message *arriving; /* a message whose body follows its head */
    uint8_t *memory;
};

/* Sends the request and waits for its reply; connects first if there is no connection. A request
 * whose connection is lost is sent again on a new one, for at most `retry` seconds. */
lig_status ligi_client_ask(ligi_client *client, ligi_client_call *call);
/* The two halves, for several requests at a time; without a retry. After a successful start, finish
 * must be called before the call's memory is freed. */
lig_status ligi_client_start(ligi_client *client, ligi_client_call *call);
lig_status ligi_client_finish(ligi_client *client, ligi_client_call *call);
/* For callers of the halves, after a loss. *lost_ns is the time of the first loss (0 before that):
 * a request that had a connection for longer than `liveness_ms` gets its full time to reconnect
 * again; one that loses each connection sooner does not. */
void ligi_client_note_loss(const ligi_client *client, const ligi_client_call *call,
                           int64_t *lost_ns);
/* The same, and reconnects, for at most `retry` seconds since *lost_ns. */
lig_status ligi_client_again(ligi_client *client, ligi_client_call *call, int64_t *lost_ns);
/* For callers of the halves, after LIG_E_BUSY: 1, after a pause, if the request should be sent
 * again.
 */
int ligi_client_may_ask_again(ligi_client *client, const ligi_client_call *call, int64_t begin_ns);
/* 1 if it failed because its connection ended, there is none, or the server is shutting down. */
int ligi_client_call_lost(ligi_client *client, const ligi_client_call *call);
/* Frees the memory of the call. */
void ligi_client_call_fini(ligi_client_call *call);

/* The messages for a call that keeps them. */
typedef struct ligi_client_news {
    ligi_client_message *message; /* the oldest, which the caller frees; NULL: none */
    uint64_t done_number;
    int accepted;
    int over; /* the reply has arrived, or the connection has ended: call finish */
} ligi_client_news;

/* Waits until there are messages that the caller has not seen (`news` is as filled by the last
 * call, zeroed at first), or LIGI_WAIT_SLICE_NS has passed; then polls the call's interrupt. */
void ligi_client_wait_news(ligi_client *client, ligi_client_call *call, ligi_client_news *news);
/* Sends DATA or COMMIT for a call in progress; returns when the data are no longer borrowed. The
 * call's interrupt cancels the call. */
lig_status ligi_client_tell(ligi_client *client, ligi_client_call *call, uint16_t op,
                            const ligi_writer *body, const struct iovec *data, size_t data_count);
/* Asks the server to cancel the request; its reply has the outcome. If the server does not reply
 * within a second, the connection ends. */
void ligi_client_cancel(ligi_client *client, ligi_client_call *call);

/* Sends RELEASE for an object that the server holds since connection `lease.session`; does nothing
 * if that connection has ended. Does not wait. */
void ligi_client_release(ligi_client *client, ligi_lease lease);

/* For the hooks, which run with the lock held. */
lig_status ligi_client_head(ligi_client *client, const ligi_arrival *arrival,
                            ligi_landing *landing);
/* The reply to a call, or a message for it, is complete. */
void ligi_client_arrived(ligi_client *client, ligi_client_call *call);
void ligi_client_sent(ligi_client_call *call);
/* The connection has ended: every request in progress fails. */
void ligi_client_fail_calls(ligi_client *client);

#endif
