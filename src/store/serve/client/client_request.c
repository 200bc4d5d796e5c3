#include "store/serve/client/client_request.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "store/serve/client/client_connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_NS INT64_C(10000000000)
#define BUSY_PAUSE_NS INT64_C(20000000)
#define SILENT_NS INT64_C(1000000000) /* after a cancellation */
#define PATIENCE_NS INT64_C(200000) /* for the reply to a brief request: a wake-up takes as long */
#define BRIEF_BYTES (UINT64_C(64) << 10)
#define DATA_BYTES_MAX (UINT64_C(1) << 30) /* of a reply in memory of the call's own */

/* --- sending; the lock is held --- */

typedef struct outgoing {
    uint16_t op;
    uint64_t id, number;
    const ligi_writer *body; /* NULL: none */
    const struct iovec *data;
    size_t data_count;
    void *token;
} outgoing;

/* *borrowed: body and data are needed until `sent`. */
static lig_status send_message(const ligi_client *client, const outgoing *message, int *borrowed)
{
    uint8_t bytes[LIGI_SERVED_HEAD_BYTES + LIGI_SERVED_INSIDE_BYTES];
    struct iovec iov[LIGI_PIECES_MAX];
    size_t body = message->body ? message->body->bytes : 0, count = 0;
    ligi_served_head head = {
        .op = message->op, .id = message->id, .number = message->number, .body_bytes = body};
    ligi_send send = {.head = bytes, .head_bytes = LIGI_SERVED_HEAD_BYTES, .token = message->token};
    if (body > LIGI_SERVED_INSIDE_BYTES) {
        head.flags |= LIGI_SERVED_BEHIND;
        iov[count++] = (struct iovec){message->body->data, body};
    } else if (body) {
        memcpy(bytes + LIGI_SERVED_HEAD_BYTES, message->body->data, body);
        send.head_bytes += body;
    }
    if (count + message->data_count > LIGI_PIECES_MAX)
        return lig_fail(LIG_E_INTERNAL, "internal error: request with %zu pieces",
                        message->data_count);
    for (size_t i = 0; i < message->data_count; i++)
        iov[count++] = message->data[i];
    ligi_served_head_put(&head, bytes);
    send.iov = iov;
    send.count = count;
    int done = 1;
    LIG_TRY(ligi_net_send(client->link, &send, &done));
    *borrowed = !done;
    return LIG_OK;
}

static lig_status not_connected(const ligi_client *client)
{
    if (client->lost.status != LIG_OK)
        return ligi_failure_publish(&client->lost);
    return lig_fail(LIG_E_PEER, "not connected to %s", client->uri);
}

/* Sends what a full queue delayed. */
static void send_releases(ligi_client *client)
{
    size_t sent = 0;
    lig_status status = LIG_OK;
    while (sent < client->release_count && status == LIG_OK) {
        ligi_writer body = {0};
        int borrowed;
        ligi_served_number_put(&body, client->releases[sent]);
        const outgoing message = {
            .op = LIGI_SERVED_RELEASE, .id = client->next_id++, .body = &body};
        status = body.status == LIG_OK ? send_message(client, &message, &borrowed) : body.status;
        ligi_writer_fini(&body);
        sent += status == LIG_OK;
    }
    client->release_count -= sent;
    if (sent && client->release_count)
        memmove(client->releases, client->releases + sent,
                client->release_count * sizeof *client->releases);
}

void ligi_client_release(ligi_client *client, ligi_lease lease)
{
    ligi_net_lock(client->net);
    if (client->state == LIGI_CLIENT_UP && client->session == lease.session &&
        ligi_grow(&client->releases, &client->release_capacity, client->release_count + 1,
                  sizeof *client->releases, "a release") == LIG_OK) {
        client->releases[client->release_count++] = lease.number;
        send_releases(client);
    }
    ligi_net_unlock(client->net);
}

/* --- the list of calls; the lock is held --- */

static ligi_client_call *find_call(const ligi_client *client, uint64_t id)
{
    ligi_client_call *call = client->calls;
    while (call && call->id != id)
        call = call->next;
    return call;
}

static void enter(ligi_client *client, ligi_client_call *call)
{
    call->next = client->calls;
    client->calls = call;
    client->call_count++;
    client->flight_bytes += call->flight_bytes;
}

/* From now on other calls may use its share of the limits, even before its thread continues. */
static void end_call(ligi_client *client, ligi_client_call *call)
{
    if (call->done)
        return;
    call->done = 1;
    client->call_count--;
    client->flight_bytes -= call->flight_bytes;
}

static void leave(ligi_client *client, ligi_client_call *call)
{
    end_call(client, call);
    ligi_client_call **at = &client->calls;
    while (*at && *at != call)
        at = &(*at)->next;
    if (*at) {
        *at = call->next;
    }
}

void ligi_client_fail_calls(ligi_client *client)
{
    for (ligi_client_call *call = client->calls; call; call = call->next)
        if (!call->done) {
            call->failure = client->lost;
            end_call(client, call);
        }
}

/* --- hooks --- */

static lig_status take_error(ligi_client_call *call, const ligi_served_head *head)
{
    ligi_served_error error;
    if (head->body == NULL)
        return lig_fail(LIG_E_CORRUPT, "protocol error: error reply without a message");
    LIG_TRY(ligi_served_error_get(head->body, head->body_bytes, &error));
    call->stopping = head->status == LIG_E_CLOSED;
    call->failure.status = call->stopping ? LIG_E_PEER : (lig_status)head->status;
    call->failure.number = error.number;
    snprintf(call->failure.text, sizeof call->failure.text, "%s", error.text);
    return LIG_OK;
}

/* Body and data in memory owned by the call, the body first in either case. */
static lig_status land_in_memory(ligi_client_call *call, const ligi_served_head *head,
                                 uint64_t payload, ligi_landing *landing)
{
    uint64_t inside = head->body ? head->body_bytes : 0;
    if (payload > LIGI_SERVED_BODY_BYTES_MAX + DATA_BYTES_MAX)
        return lig_fail(LIG_E_CORRUPT, "protocol error: invalid reply of %llu bytes to '%s'",
                        (unsigned long long)payload, ligi_served_op_name(head->op));
    LIG_TRY(ligi_alloc(&call->memory, inside + payload + 1, "a reply"));
    if (inside)
        memcpy(call->memory, head->body, inside);
    call->reply = call->memory;
    call->reply_bytes = head->body_bytes;
    call->landing = (struct iovec){call->memory + inside, payload};
    if (payload)
        *landing = (ligi_landing){&call->landing, 1, NULL};
    return LIG_OK;
}

/* `into` stays as it is: a request whose connection is lost in its reply is sent again. */
static void land_in_place(ligi_client_call *call, ligi_landing *landing)
{
    memcpy(call->left, call->into, call->into_count * sizeof *call->into);
    *landing = (ligi_landing){call->left, call->into_count, NULL};
}

static lig_status land_reply(ligi_client *client, ligi_client_call *call,
                             const ligi_served_head *head, const ligi_arrival *arrival,
                             ligi_landing *landing)
{
    if (head->op != call->op || call->done)
        return lig_fail(LIG_E_CORRUPT, "protocol error: unexpected reply to '%s'",
                        ligi_served_op_name(call->op));
    call->version = head->number;
    if (head->number > client->version)
        client->version = head->number;
    if (head->status)
        LIG_TRY(take_error(call, head));
    else if (call->into == NULL)
        LIG_TRY(land_in_memory(call, head, arrival->payload_bytes, landing));
    else if (arrival->payload_bytes != call->into_bytes || head->body_bytes)
        return lig_fail(LIG_E_CORRUPT, "%llu bytes received, but %llu were requested",
                        (unsigned long long)arrival->payload_bytes,
                        (unsigned long long)call->into_bytes);
    else
        land_in_place(call, landing);
    landing->token = call;
    return LIG_OK;
}

static void push_message(ligi_client_call *call, ligi_client_message *message)
{
    *call->last = message;
    call->last = &message->next;
}

static lig_status land_message(ligi_client_call *call, const ligi_served_head *head,
                               ligi_landing *landing)
{
    ligi_client_message *message;
    LIG_TRY(ligi_alloc(&message, sizeof *message + head->body_bytes, "a message"));
    message->next = NULL;
    message->bytes = head->body_bytes;
    if (head->body) {
        memcpy(message->body, head->body, head->body_bytes);
        push_message(call, message);
        return LIG_OK;
    }
    call->arriving = message;
    call->landing = (struct iovec){message->body, message->bytes};
    *landing = (ligi_landing){&call->landing, 1, call};
    return LIG_OK;
}

/* One that comes after the end of its save is discarded. */
static lig_status keep_message(ligi_client_call *call, const ligi_served_head *head,
                               uint64_t payload, ligi_landing *landing)
{
    if (call == NULL)
        return LIG_OK;
    if (!call->keeps_messages || call->done || payload > (head->body ? 0 : head->body_bytes) ||
        (head->op == LIGI_SERVED_NEED && call->op != LIGI_SERVED_SAVE))
        return lig_fail(LIG_E_CORRUPT, "protocol error: unexpected message '%s'",
                        ligi_served_op_name(head->op));
    if (head->op == LIGI_SERVED_NEED)
        return land_message(call, head, landing);
    call->accepted = 1;
    return ligi_served_number_get(head->body, head->body ? head->body_bytes : 0,
                                  &call->done_number);
}

lig_status ligi_client_head(ligi_client *client, const ligi_arrival *arrival, ligi_landing *landing)
{
    ligi_served_head head;
    LIG_TRY(
        ligi_served_head_get(arrival->head, arrival->head_bytes, arrival->payload_bytes, &head));
    ligi_client_call *call = find_call(client, head.id);
    if (head.flags & LIGI_SERVED_REPLY) /* the reply to a PING: nothing waits for it */
        return call ? land_reply(client, call, &head, arrival, landing) : LIG_OK;
    if (head.op == LIGI_SERVED_NEED || head.op == LIGI_SERVED_DONE)
        return keep_message(call, &head, arrival->payload_bytes, landing);
    return lig_fail(LIG_E_CORRUPT, "protocol error: request '%s' from a server",
                    ligi_served_op_name(head.op));
}

void ligi_client_arrived(ligi_client *client, ligi_client_call *call)
{
    if (call->arriving)
        push_message(call, call->arriving);
    else
        end_call(client, call);
    call->arriving = NULL;
}

void ligi_client_sent(ligi_client_call *call)
{
    call->borrowed = 0;
}

/* --- one request --- */

/* The bytes that the server counts for this call, as far as they are known in advance. */
static uint64_t flight_of(const ligi_client_call *call)
{
    uint64_t bytes = call->into_bytes;
    if (call->body.bytes > LIGI_SERVED_INSIDE_BYTES)
        bytes += call->body.bytes;
    for (size_t i = 0; i < call->data_count; i++)
        bytes += call->data[i].iov_len;
    return bytes;
}

typedef struct slot_wait {
    const ligi_client *client;
    uint64_t bytes;
} slot_wait;

/* Keeps this client within the limits of its session, so that it is not refused: within half of the
 * bytes, because the server counts a reply until after it has arrived. */
static int has_slot(void *context)
{
    const slot_wait *self = context;
    const ligi_client *client = self->client;
    const ligi_served_welcome *limits = &client->welcome;
    return client->state != LIGI_CLIENT_UP ||
           (client->call_count < limits->request_max &&
            (client->flight_bytes == 0 ||
             client->flight_bytes + self->bytes <= limits->flight_bytes_max / 2));
}

static int is_over(void *context)
{
    const ligi_client_call *call = context;
    return call->done && !call->borrowed;
}

static void forget_reply(ligi_client_call *call)
{
    while (call->first) {
        ligi_client_message *next = call->first->next;
        free(call->first);
        call->first = next;
    }
    free(call->arriving);
    call->arriving = NULL;
    free(call->memory);
    call->memory = NULL;
    call->reply = NULL;
    call->id = 0;
    call->done_number = 0;
    call->accepted = 0;
    call->stopping = 0;
    call->sent_ns = call->cancelled_ns = 0;
}

static int is_brief(const ligi_client_call *call)
{
    return ligi_served_op_brief(call->op) && call->into_bytes <= BRIEF_BYTES;
}

static lig_status start_locked(ligi_client *client, ligi_client_call *call)
{
    if (client->state != LIGI_CLIENT_UP)
        return not_connected(client);
    send_releases(client);
    if (ligi_served_op_mutates(call->op) && call->sequence == 0)
        call->sequence = ++client->next_sequence;
    call->id = client->next_id++;
    call->session = client->session;
    call->done = call->borrowed = 0;
    call->failure.status = LIG_OK;
    call->last = &call->first;
    ligi_net_be_patient(client->net, is_brief(call) ? PATIENCE_NS : 0);
    const outgoing message = {.op = call->op,
                              .id = call->id,
                              .number = call->sequence,
                              .body = &call->body,
                              .data = call->data,
                              .data_count = call->data_count,
                              .token = call};
    LIG_TRY(send_message(client, &message, &call->borrowed));
    call->sent_ns = ligi_now_ns();
    enter(client, call);
    return LIG_OK;
}

static int is_interrupted(const ligi_client_call *call)
{
    const ligi_interrupt *interrupt = call->interrupt;
    return interrupt && interrupt->hook && interrupt->hook(interrupt->context);
}

/* With the lock, which is released while the interrupt is polled. */
static lig_status wait_for_slot(ligi_client *client, const ligi_client_call *call,
                                slot_wait *waiting)
{
    lig_status status;
    int interrupted = 0;
    while (!interrupted && (status = ligi_net_await(client->net, has_slot, waiting,
                                                    LIGI_WAIT_SLICE_NS)) == LIG_E_TIMEOUT) {
        ligi_net_unlock(client->net);
        interrupted = is_interrupted(call);
        ligi_net_lock(client->net);
    }
    return interrupted ? lig_fail(LIG_E_CLOSED, "interrupted while waiting for %s", client->uri)
                       : status;
}

lig_status ligi_client_start(ligi_client *client, ligi_client_call *call)
{
    forget_reply(call);
    LIG_TRY(call->body.status);
    slot_wait waiting = {client, flight_of(call)};
    ligi_net_lock(client->net);
    lig_status status = wait_for_slot(client, call, &waiting);
    call->flight_bytes = waiting.bytes;
    if (status == LIG_OK)
        status = start_locked(client, call);
    call->started = status == LIG_OK;
    ligi_net_unlock(client->net);
    return status;
}

/* An interrupt ends the request on the server too, whose reply is then waited for: it may be on its
 * way into the caller's memory. */
void ligi_client_cancel(ligi_client *client, ligi_client_call *call)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, call->id);
    ligi_net_lock(client->net);
    int borrowed;
    outgoing message = {.op = LIGI_SERVED_CANCEL, .id = client->next_id++, .body = &body};
    if (client->state == LIGI_CLIENT_UP && !call->done && body.status == LIG_OK) {
        if (call->cancelled_ns == 0)
            call->cancelled_ns = ligi_now_ns();
        if (send_message(client, &message, &borrowed) == LIG_OK)
            ligi_client_ping(client); /* which has an answer at once */
    }
    ligi_net_unlock(client->net);
    ligi_writer_fini(&body);
}

/* If the caller is interrupted, a stopped server is not awaited for `liveness_ms`. */
static int is_silent(const ligi_client *client, const ligi_client_call *call, int64_t now_ns)
{
    return call->cancelled_ns && now_ns - call->cancelled_ns >= SILENT_NS &&
           ligi_link_heard_ns(client->link) < call->cancelled_ns;
}

static void end_if_late(ligi_client *client, const ligi_client_call *call)
{
    ligi_net_lock(client->net);
    int64_t now = ligi_now_ns();
    if (client->state != LIGI_CLIENT_UP || client->session != call->session || call->done)
        ; /* it has ended */
    else if (is_silent(client, call, now))
        ligi_client_drop(client, "the server did not answer when a request was cancelled");
    else if (call->deadline_ns && now >= call->deadline_ns)
        ligi_client_drop(client, "the server did not answer in time");
    ligi_net_unlock(client->net);
}

/* After a slice of a wait. */
static void look_at_interrupt(ligi_client *client, ligi_client_call *call)
{
    if (call->cancelled_ns || call->deadline_ns)
        end_if_late(client, call);
    if (call->cancelled_ns == 0 && is_interrupted(call))
        ligi_client_cancel(client, call);
}

lig_status ligi_client_finish(ligi_client *client, ligi_client_call *call)
{
    lig_status status;
    while ((status = ligi_net_wait(client->net, is_over, call, LIGI_WAIT_SLICE_NS)) ==
           LIG_E_TIMEOUT)
        look_at_interrupt(client, call);
    ligi_net_lock(client->net);
    leave(client, call);
    ligi_net_unlock(client->net);
    call->started = 0;
    LIG_TRY(status);
    if (call->cancelled_ns && call->failure.status != LIG_OK)
        return lig_fail(LIG_E_CLOSED, "interrupted while waiting for %s", client->uri);
    return call->failure.status == LIG_OK ? LIG_OK : ligi_failure_publish(&call->failure);
}

int ligi_client_call_lost(ligi_client *client, const ligi_client_call *call)
{
    ligi_net_lock(client->net);
    int lost = call->stopping || client->state != LIGI_CLIENT_UP ||
               (call->id && client->session != call->session);
    ligi_net_unlock(client->net);
    return lost;
}

static int never(void *context)
{
    (void)context;
    return 0;
}

/* A server at its limits has not executed the request. Reads are retried, other requests for at
 * most `retry` seconds; for a lock, BUSY is the result. 1: send it again. */
int ligi_client_may_ask_again(ligi_client *client, const ligi_client_call *call, int64_t begin_ns)
{
    int64_t limit = client->options.retry * INT64_C(1000000000);
    if (call->op == LIGI_SERVED_READ && limit < BUSY_NS)
        limit = BUSY_NS;
    return call->op != LIGI_SERVED_LOCK && ligi_now_ns() - begin_ns < limit &&
           ligi_net_wait(client->net, never, NULL, BUSY_PAUSE_NS) == LIG_E_TIMEOUT;
}

void ligi_client_note_loss(const ligi_client *client, const ligi_client_call *call,
                           int64_t *lost_ns)
{
    int64_t now = ligi_now_ns(), liveness = client->options.liveness_ms * INT64_C(1000000);
    if (*lost_ns == 0 || (call->sent_ns && now - call->sent_ns > liveness))
        *lost_ns = now;
}

/* A server that is shutting down keeps its connections until it has finished; until then no other
 * server listens at the address. */
lig_status ligi_client_again(ligi_client *client, ligi_client_call *call, int64_t *lost_ns)
{
    int64_t before = *lost_ns, limit = client->options.retry * INT64_C(1000000000);
    ligi_client_note_loss(client, call, lost_ns);
    if (ligi_now_ns() - *lost_ns >= limit)
        return ligi_fail_again(LIG_E_PEER, "%s (tried for %lld s)", lig_error_text(),
                               (long long)client->options.retry);
    if (call->stopping || *lost_ns == before)
        (void)ligi_net_wait(client->net, never, NULL, BUSY_PAUSE_NS);
    return ligi_client_reconnect(client, *lost_ns, call->interrupt);
}

lig_status ligi_client_ask(ligi_client *client, ligi_client_call *call)
{
    int64_t begin = ligi_now_ns(), lost = 0;
    for (;;) {
        lig_status status = ligi_client_start(client, call);
        if (status == LIG_OK)
            status = ligi_client_finish(client, call);
        if (status == LIG_E_BUSY && ligi_client_may_ask_again(client, call, begin))
            continue;
        if (status == LIG_OK || client->options.retry == 0 || status == LIG_E_CLOSED ||
            !ligi_client_call_lost(client, call))
            return status;
        LIG_TRY(ligi_client_again(client, call, &lost));
    }
}

void ligi_client_call_fini(ligi_client_call *call)
{
    forget_reply(call);
    ligi_writer_fini(&call->body);
}

/* --- while a save runs --- */

typedef struct news_wait {
    const ligi_client_call *call;
    const ligi_client_news *known;
} news_wait;

static int has_news(void *context)
{
    const news_wait *self = context;
    const ligi_client_call *call = self->call;
    return call->first || call->done || call->done_number != self->known->done_number ||
           call->accepted != self->known->accepted;
}

void ligi_client_wait_news(ligi_client *client, ligi_client_call *call, ligi_client_news *news)
{
    news_wait waiting = {call, news};
    lig_status status = ligi_net_wait(client->net, has_news, &waiting, LIGI_WAIT_SLICE_NS);
    if (status == LIG_E_TIMEOUT)
        look_at_interrupt(client, call);
    ligi_net_lock(client->net);
    news->message = call->first;
    if (call->first) {
        call->first = call->first->next;
        if (call->first == NULL)
            call->last = &call->first;
    }
    news->done_number = call->done_number;
    news->accepted = call->accepted;
    news->over = call->done || status == LIG_E_CLOSED;
    ligi_net_unlock(client->net);
}

lig_status ligi_client_tell(ligi_client *client, ligi_client_call *call, uint16_t op,
                            const ligi_writer *body, const struct iovec *data, size_t data_count)
{
    ligi_client_call sending = {.done = 1};
    outgoing message = {.op = op,
                        .id = call->id,
                        .body = body,
                        .data = data,
                        .data_count = data_count,
                        .token = &sending};
    ligi_net_lock(client->net);
    lig_status status = client->state == LIGI_CLIENT_UP && client->session == call->session
                            ? send_message(client, &message, &sending.borrowed)
                            : not_connected(client);
    ligi_net_unlock(client->net);
    LIG_TRY(status);
    while ((status = ligi_net_wait(client->net, is_over, &sending, LIGI_WAIT_SLICE_NS)) ==
           LIG_E_TIMEOUT)
        look_at_interrupt(client, call);
    return status;
}
