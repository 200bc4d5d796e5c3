/* Messages to clients. A client that does not read them loses its session, and blocks no other. */
#ifndef LIGI_SERVER_REPLY_H
#define LIGI_SERVER_REPLY_H

#include "store/serve/server/server_state.h"

/* What is sent. body and data are taken over, and `charge` is given back when they are sent; also
 * on failure, and when the session has ended. */
typedef struct ligi_served_message {
    ligi_served_head head; /* body_bytes and LIGI_SERVED_BEHIND are set by send */
    ligi_writer *body;     /* NULL: none */
    uint8_t *data;         /* of the server's buffers; NULL: none */
    uint64_t data_bytes;
    uint64_t charge;
} ligi_served_message;

/* Any thread. */
void ligi_served_send(ligi_served_session *session, ligi_served_message *message);
/* The reply to a request: the call's body and data, or this thread's error text. */
void ligi_served_reply(ligi_served_call *call, lig_status status);
/* A reply with this thread's error text, to a request that has no call. */
void ligi_served_refuse(ligi_served_session *session, const ligi_served_head *request,
                        lig_status status);
/* With the endpoint's lock: sends the replies whose time has come, which the rate held back; when
 * the next one's comes, or INT64_MAX. */
int64_t ligi_served_send_delayed(lig_server *server, int64_t now_ns);
/* The `sent` hook. */
void ligi_served_sent(void *context, ligi_link *link, void *token, lig_status status);

#endif
