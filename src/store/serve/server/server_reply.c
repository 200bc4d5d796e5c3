#include "store/serve/server/server_reply.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/link_send.h"
#include "net/service.h"
#include "store/serve/roles/hidden_place.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"

#include <stdlib.h>
#include <string.h>

/* What net borrows until it is sent. */
typedef struct outgoing {
    ligi_served_session *session; /* held */
    ligi_writer body;
    uint8_t *data;
    uint64_t data_bytes, charge;
} outgoing;

static void outgoing_free(outgoing *out)
{
    if (out->charge)
        ligi_served_uncharge(out->session, out->charge);
    ligi_writer_fini(&out->body);
    ligi_served_buffer_give(&out->session->server->buffers, out->data, out->data_bytes);
    ligi_served_session_drop(out->session);
    free(out);
}

/* With the endpoint's lock. */
static void note_sent(ligi_served_session *session)
{
    session->unsent--;
    session->stalled_ns = session->unsent ? ligi_now_ns() : 0;
}

void ligi_served_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    outgoing *out = token;
    (void)context, (void)link, (void)status;
    if (out == NULL)
        return;
    note_sent(out->session);
    outgoing_free(out);
}

static lig_status send_pieces(outgoing *out, const ligi_send *send, int *done)
{
    ligi_served_session *session = out->session;
    session->unsent++;
    if (session->stalled_ns == 0)
        session->stalled_ns = ligi_now_ns();
    lig_status status = ligi_net_send(session->link, send, done);
    if (status != LIG_OK || *done || send->count == 0)
        note_sent(session);
    return status;
}

/* The lock is held, and the link is up. 1: net has `out` now. */
static int send_locked(outgoing *out, ligi_served_head *head)
{
    uint8_t bytes[LIGI_SERVED_HEAD_BYTES + LIGI_SERVED_INSIDE_BYTES];
    struct iovec iov[2];
    size_t count = 0, head_bytes = LIGI_SERVED_HEAD_BYTES;
    int done = 0;
    head->body_bytes = out->body.bytes;
    if (out->body.bytes > LIGI_SERVED_INSIDE_BYTES) {
        head->flags |= LIGI_SERVED_BEHIND;
        iov[count++] = (struct iovec){out->body.data, out->body.bytes};
    } else if (out->body.bytes) {
        memcpy(bytes + head_bytes, out->body.data, out->body.bytes);
        head_bytes += out->body.bytes;
    }
    if (out->data_bytes)
        iov[count++] = (struct iovec){out->data, out->data_bytes};
    ligi_served_head_put(head, bytes);
    ligi_send send = {
        .head = bytes, .head_bytes = head_bytes, .iov = iov, .count = count, .token = out};
    lig_status status = send_pieces(out, &send, &done);
    if (status !=
        LIG_OK) { /* the client does not read thousands of replies, or there is no memory */
        atomic_fetch_add(&out->session->server->dropped, 1);
        ligi_served_session_end(out->session,
                                status == LIG_E_BUSY ? "too many unread replies" : NULL);
    }
    return status == LIG_OK && !done && count > 0;
}

void ligi_served_send(ligi_served_session *session, ligi_served_message *message)
{
    outgoing *out = calloc(1, sizeof *out);
    if (out == NULL) { /* the client would wait for ever */
        ligi_served_buffer_give(&session->server->buffers, message->data, message->data_bytes);
        if (message->body)
            ligi_writer_fini(message->body);
        ligi_served_uncharge(session, message->charge);
        ligi_net_lock(session->server->net);
        ligi_served_session_end(session, "the server is out of memory");
        ligi_net_unlock(session->server->net);
        return;
    }
    ligi_served_session_hold(session);
    *out = (outgoing){.session = session,
                      .data = message->data,
                      .data_bytes = message->data_bytes,
                      .charge = message->charge};
    if (message->body) {
        out->body = *message->body;
        *message->body = (ligi_writer){0};
    }
    ligi_net_lock(session->server->net);
    int borrowed = session->link && send_locked(out, &message->head);
    ligi_net_unlock(session->server->net);
    if (!borrowed)
        outgoing_free(out);
}

/* --- the rate --- */

typedef struct ligi_served_delayed {
    struct ligi_served_delayed *next;
    ligi_served_session *session; /* held */
    ligi_served_message message;
    ligi_writer body;
    int64_t at_ns;
} delayed_reply;

/* When a reply of so many bytes may be sent. With the endpoint's lock. */
static int64_t reserve(lig_server *server, uint64_t bytes)
{
    int64_t now_ns = ligi_now_ns();
    int64_t at_ns = server->rate_free_ns > now_ns ? server->rate_free_ns : now_ns;
    server->rate_free_ns = at_ns + (int64_t)((double)bytes * 1e9 / (double)server->options.rate);
    return at_ns;
}

/* Replies leave in the order in which they came here; a worker does not wait for them. */
static void send_limited(ligi_served_session *session, ligi_served_message *message)
{
    lig_server *server = session->server;
    delayed_reply *one = calloc(1, sizeof *one);
    if (one == NULL) { /* sent early if there is no memory to delay it */
        ligi_served_send(session, message);
        return;
    }
    ligi_served_session_hold(session);
    *one = (delayed_reply){.session = session, .message = *message, .body = *message->body};
    *message->body = (ligi_writer){0};
    ligi_net_lock(server->net);
    one->at_ns = reserve(server, message->data_bytes);
    *server->delayed_end = one;
    server->delayed_end = &one->next;
    ligi_net_unlock(server->net);
    ligi_net_hurry(server->net, LIGI_SERVICE_STORE);
}

int64_t ligi_served_send_delayed(lig_server *server, int64_t now_ns)
{
    delayed_reply *one;
    while ((one = server->delayed) != NULL && one->at_ns <= now_ns) {
        server->delayed = one->next;
        if (server->delayed == NULL)
            server->delayed_end = &server->delayed;
        one->message.body = &one->body;
        ligi_served_send(one->session, &one->message);
        ligi_served_session_drop(one->session);
        free(one);
    }
    return one ? one->at_ns : INT64_MAX;
}

/* --- replies --- */

static void put_failure(const ligi_served_session *session, ligi_writer *body)
{
    char text[LIGI_ERROR_TEXT_BYTES];
    ligi_served_error error = {lig_error_number(), lig_error_text()};
    if (ligi_served_scope(session)) {
        ligi_served_place_hide(error.text, session->server->store->uri, text);
        error.text = text;
    }
    body->bytes = 0;
    body->status = LIG_OK;
    ligi_served_error_put(body, &error);
}

/* Only a reply without new state can be refused: a client must learn what it holds and what
 * it has saved. */
static int is_repeatable(uint32_t op)
{
    return op == LIGI_SERVED_MODELS || op == LIGI_SERVED_LINEAGE || op == LIGI_SERVED_WATCH ||
           op == LIGI_SERVED_STAMPS;
}

static lig_status charge_body(ligi_served_call *call)
{
    if (is_repeatable(call->job->head.op))
        LIG_TRY(ligi_served_charge_reply(call->session, call->body.bytes));
    else
        ligi_served_charge_anyway(call->session, call->body.bytes);
    call->charge += call->body.bytes;
    return LIG_OK;
}

void ligi_served_reply(ligi_served_call *call, lig_status status)
{
    const ligi_served_head *request = &call->job->head;
    if (status == LIG_OK)
        status = call->body.status;
    if (status == LIG_OK && call->body.bytes > LIGI_SERVED_BODY_BYTES_MAX)
        status = lig_fail(LIG_E_LIMIT, "reply too large: %zu bytes, the limit is %llu",
                          call->body.bytes, (unsigned long long)LIGI_SERVED_BODY_BYTES_MAX);
    if (status == LIG_OK && call->body.bytes > LIGI_SERVED_INSIDE_BYTES)
        status = charge_body(call);
    if (status != LIG_OK) {
        put_failure(call->session, &call->body);
        ligi_served_buffer_give(&call->server->buffers, call->data, call->data_bytes);
        call->data = NULL;
        call->data_bytes = 0;
    }
    ligi_served_message message = {.head = {.op = request->op,
                                            .flags = LIGI_SERVED_REPLY,
                                            .status = (uint32_t)status,
                                            .id = request->id,
                                            .number = call->version},
                                   .body = &call->body,
                                   .data = call->data,
                                   .data_bytes = call->data_bytes,
                                   .charge = call->charge};
    call->data = NULL;
    call->charge = 0;
    atomic_fetch_add(&call->server->requests, 1);
    if (call->server->options.rate && message.data_bytes)
        send_limited(call->session, &message);
    else
        ligi_served_send(call->session, &message);
}

void ligi_served_refuse(ligi_served_session *session, const ligi_served_head *request,
                        lig_status status)
{
    ligi_writer body = {0};
    put_failure(session, &body);
    ligi_served_message message = {.head = {.op = request->op,
                                            .flags = LIGI_SERVED_REPLY,
                                            .status = (uint32_t)status,
                                            .id = request->id},
                                   .body = &body};
    ligi_served_send(session, &message);
}
