/* Requests and replies. Any number of threads may have requests under way. */
#ifndef LIGI_CLIENT_REQUEST_H
#define LIGI_CLIENT_REQUEST_H

#include "store/serve/client/client.h"

/* A NEED of the server's, on its way from the hook to the thread that saves. */
typedef struct ligi_client_message {
    struct ligi_client_message *next;
    size_t bytes;
    uint8_t body[];
} ligi_client_message;

/* One request; zeroed but for what is asked. Stays where it is until it is finished. */
struct ligi_client_call {
    /* The request. The body is freed by ligi_client_call_fini, the data are borrowed. */
    uint16_t op;
    ligi_writer body;
    const struct iovec *data;
    size_t data_count;
    const struct iovec *into; /* where the reply's data go; NULL: into memory of the call's own */
    struct iovec *left;       /* as many entries: what has not arrived yet */
    size_t into_count;
    uint64_t into_bytes;             /* of `into` in all: a reply has exactly as many */
    const ligi_interrupt *interrupt; /* NULL: never asked */
    int keeps_messages;              /* NEED and DONE are for this call */
    int64_t deadline_ns;             /* without a reply by then the connection is ended; 0: never */

    /* The reply, after LIG_OK. */
    const uint8_t *reply; /* the body */
    size_t reply_bytes;
    uint64_t version;

    /* Messages of the server's while the request is under way; under the lock of the net. */
    ligi_client_message *first, **last;
    uint64_t done_number; /* of the latest DONE */
    int accepted;         /* there was a DONE */

    /* Private. */
    ligi_client_call *next;
    uint64_t id, sequence, session;
    int64_t sent_ns;      /* 0: it was not sent */
    int64_t cancelled_ns; /* when the server was asked to end it; 0: it was not */
    uint64_t flight_bytes;
    int started, borrowed, done;
    int stopping; /* the server refused it because it stops */
    ligi_failure failure;
    struct iovec landing;
    ligi_client_message *arriving; /* a message whose body is behind its head */
    uint8_t *memory;
};

/* Sends the request and waits for its reply; connects first when there is no connection. A request
 * whose connection is lost is sent again, on a new one, for as long as `retry` says. */
lig_status ligi_client_ask(ligi_client *client, ligi_client_call *call);
/* The two halves, for several requests at one time; without a retry. After a start that succeeded,
 * finish must follow, before the call's memory goes. */
lig_status ligi_client_start(ligi_client *client, ligi_client_call *call);
lig_status ligi_client_finish(ligi_client *client, ligi_client_call *call);
/* For callers of the halves, after a loss. *lost_ns is when it was lost first (0 before that): a
 * request that had a connection for longer than `liveness_ms` has its whole time to reconnect
 * again, one that loses each connection soon has not. */
void ligi_client_note_loss(const ligi_client *client, const ligi_client_call *call,
                           int64_t *lost_ns);
/* The same, and connects again, for as long as `retry` says since *lost_ns. */
lig_status ligi_client_again(ligi_client *client, ligi_client_call *call, int64_t *lost_ns);
/* For callers of the halves, after LIG_E_BUSY: 1 after a pause, if the request is to be sent again.
 */
int ligi_client_may_ask_again(ligi_client *client, const ligi_client_call *call, int64_t begin_ns);
/* 1: it failed because its connection ended, there is none, or the server stops. */
int ligi_client_call_lost(ligi_client *client, const ligi_client_call *call);
/* Frees what the call holds. */
void ligi_client_call_fini(ligi_client_call *call);

/* The messages for a call that keeps them. */
typedef struct ligi_client_news {
    ligi_client_message *message; /* the oldest, which the caller frees; NULL: none */
    uint64_t done_number;
    int accepted;
    int over; /* the reply is there, or the connection has ended: finish */
} ligi_client_news;

/* Waits until there is more than the caller knows (`news` as the last call filled it, zeroed at
 * first), or LIGI_WAIT_SLICE_NS is over; then the call's interrupt is asked. */
void ligi_client_wait_news(ligi_client *client, ligi_client_call *call, ligi_client_news *news);
/* Sends DATA or COMMIT for a call under way; returns when the data are not borrowed any more. The
 * call's interrupt cancels the call. */
lig_status ligi_client_tell(ligi_client *client, ligi_client_call *call, uint16_t op,
                            const ligi_writer *body, const struct iovec *data, size_t data_count);
/* Asks the server to end the request; its reply has the outcome. A server that does not reply for
 * a second after that is not waited for: the connection ends. */
void ligi_client_cancel(ligi_client *client, ligi_client_call *call);

/* Sends RELEASE for what the server keeps since connection `lease.session`; nothing when that has
 * ended. Does not wait. */
void ligi_client_release(ligi_client *client, ligi_lease lease);

/* For the hooks, which run with the lock held. */
lig_status ligi_client_head(ligi_client *client, const ligi_arrival *arrival,
                            ligi_landing *landing);
/* The reply to a call, or a message for it, is complete. */
void ligi_client_arrived(ligi_client *client, ligi_client_call *call);
void ligi_client_sent(ligi_client_call *call);
/* The connection is gone: every request under way fails. */
void ligi_client_fail_calls(ligi_client *client);

#endif
