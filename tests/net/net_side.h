/* One side of a conversation, for the tests of src/net: it keeps what it hears, and echoes when
 * told to. */
#ifndef NET_SIDE_H
#define NET_SIDE_H

#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/progress.h"
#include "net/service.h"
#include "net/transport.h"
#include "net/transport_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_LINKS 128
#define SIDE_WAIT_NS INT64_C(60000000000)

typedef struct side_message {
    struct side_message *next;
    ligi_link *link;
    size_t head_bytes, payload_bytes;
    uint8_t *head, *payload;
    struct iovec iov[3];
} side_message;

typedef struct side {
    ligi_net *net;
    char address[LIGI_ADDRESS_BYTES_MAX];
    int leave;      /* closes a link after its first message */
    int echo, keep; /* keep: messages are listed for the test to look at */
    int refuse_hello, refuse_head, ignore_payload;
    size_t met, lost, arrived, sent, landing; /* counts */
    size_t sent_before_lost;
    lig_status lost_status, sent_status;
    char sentence[1024], hello[64];
    ligi_link *links[SIDE_LINKS]; /* met and not lost */
    side_message *first, **end, *arriving;
    side_message *parts; /* those that are arriving, one a link at most */
    int64_t ticks;
} side;

static side_message *side_message_make(ligi_link *link, size_t head_bytes, size_t payload_bytes)
{
    side_message *made = calloc(1, sizeof *made);

    made->link = link;
    made->head_bytes = head_bytes;
    made->payload_bytes = payload_bytes;
    made->head = malloc(head_bytes + 1);
    made->payload = malloc(payload_bytes + 1);
    return made;
}

static void side_message_free(side_message *message)
{
    if (message == NULL)
        return;
    free(message->head);
    free(message->payload);
    free(message);
}

static side_message *side_unlist(side *self, const ligi_link *link)
{
    side_message **at = &self->parts;

    while (*at != NULL && (*at)->link != link)
        at = &(*at)->next;
    side_message *found = *at;
    if (found != NULL) {
        *at = found->next;
        found->next = NULL;
    }
    return found;
}

static lig_status side_met(void *context, ligi_link *link, const ligi_hello *hello,
                           ligi_reply *reply)
{
    side *self = context;

    snprintf(self->hello, sizeof self->hello, "%.*s", (int)hello->bytes,
             hello->data ? (const char *)hello->data : "");
    if (self->refuse_hello)
        return lig_fail(LIG_E_DENIED, "we do not like '%s'", self->hello);
    reply->bytes =
        (size_t)snprintf((char *)reply->data, sizeof reply->data, "echo of %s", self->hello);
    for (size_t i = 0; i < SIDE_LINKS; i++) {
        if (self->links[i] == NULL) {
            self->links[i] = link;
            break;
        }
    }
    self->met++;
    return LIG_OK;
}

static lig_status side_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                            ligi_landing *landing)
{
    side *self = context;

    if (self->refuse_head)
        return lig_fail(LIG_E_MISMATCH, "head of %zu bytes is not for us", arrival->head_bytes);
    side_message *message = side_message_make(link, arrival->head_bytes, arrival->payload_bytes);
    memcpy(message->head, arrival->head, arrival->head_bytes);
    landing->token = message;
    self->arriving = message;
    message->next = self->parts;
    self->parts = message;
    self->landing++;
    if (arrival->payload_bytes == 0 || self->ignore_payload)
        return LIG_OK;
    size_t third = arrival->payload_bytes / 3;
    message->iov[0] = (struct iovec){message->payload, third};
    message->iov[1] = (struct iovec){message->payload + third, 0};
    message->iov[2] = (struct iovec){message->payload + third, arrival->payload_bytes - third};
    landing->iov = message->iov;
    landing->count = 3;
    return LIG_OK;
}

static void side_arrived(void *context, ligi_link *link, void *token)
{
    side *self = context;
    side_message *message = token;
    int done = 1;

    self->arrived++;
    self->landing--;
    side_unlist(self, link);
    if (self->echo) {
        struct iovec iov = {message->payload, message->payload_bytes};
        ligi_send send = {.head = message->head,
                          .head_bytes = message->head_bytes,
                          .iov = &iov,
                          .count = 1,
                          .token = message};
        if (ligi_net_send(link, &send, &done) != LIG_OK)
            done = 1;
    }
    if (self->leave)
        ligi_link_close(link, "left");
    if (self->keep) {
        *self->end = message;
        self->end = &message->next;
    } else if (done) {
        side_message_free(message);
    }
}

static void side_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    side *self = context;

    (void)link;
    self->sent++;
    self->sent_status = status;
    if (self->echo && !self->keep)
        side_message_free(token);
}

static void side_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    side *self = context;

    self->lost++;
    self->sent_before_lost = self->sent;
    self->lost_status = status;
    snprintf(self->sentence, sizeof self->sentence, "%s", sentence);
    for (size_t i = 0; i < SIDE_LINKS; i++)
        if (self->links[i] == link)
            self->links[i] = NULL;
    side_message_free(side_unlist(self, link)); /* of which only a part has come */
    ligi_link_close(link, NULL);
}

static int64_t side_tick(void *context, int64_t now_ns)
{
    side *self = context;

    self->ticks++;
    return now_ns + 1000000;
}

static const ligi_net_hooks side_hooks = {side_met,  side_head, side_arrived,
                                          side_sent, side_lost, side_tick};

/* `where` NULL: does not listen. */
static lig_status side_open(side *self, const char *where, const ligi_net_options *options)
{
    *self = (side){0};
    self->end = &self->first;
    LIG_TRY(ligi_net_open(&self->net, options));
    LIG_TRY(ligi_net_serve(self->net, LIGI_SERVICE_TEST, &side_hooks, self));
    return where ? ligi_net_listen(self->net, where, self->address) : LIG_OK;
}

static void side_forget(side *self)
{
    while (self->first != NULL) {
        side_message *next = self->first->next;
        side_message_free(self->first);
        self->first = next;
    }
    self->end = &self->first;
}

static void side_close(side *self)
{
    ligi_net_close(self->net);
    side_forget(self);
    while (self->parts != NULL)
        side_message_free(side_unlist(self, self->parts->link));
}

/* A condition of the form: counter >= what is wanted. */
typedef struct side_wish {
    const size_t *counter;
    size_t wanted;
} side_wish;

static int side_reached(void *context)
{
    const side_wish *wish = context;
    return *wish->counter >= wish->wanted;
}

__attribute__((unused)) static lig_status side_wait(side *self, const size_t *counter,
                                                    size_t wanted)
{
    side_wish wish = {counter, wanted};
    return ligi_net_wait(self->net, side_reached, &wish, SIDE_WAIT_NS);
}

/* Drives both until it is so: for two endpoints of one thread. */
__attribute__((unused)) static int side_both(side *one, side *two, const size_t *counter,
                                             size_t wanted)
{
    for (long i = 0; i < 20000000 && *counter < wanted; i++) {
        ligi_net_poll(one->net);
        ligi_net_poll(two->net);
    }
    return *counter >= wanted;
}

__attribute__((unused)) static lig_status side_connect(side *self, const char *address,
                                                       const char *hello, ligi_link **link)
{
    ligi_connect connect = {.address = address,
                            .service = LIGI_SERVICE_TEST,
                            .hello = hello,
                            .hello_bytes = strlen(hello),
                            .timeout_ns = SIDE_WAIT_NS};
    return ligi_net_connect(self->net, &connect, link);
}

/* The i-th transport of builtin.def, then those that are shared objects of their own; 0 after the
 * last. One that this machine lacks is named and left out. */
__attribute__((unused)) static int side_transport(size_t i, const ligi_transport_ops **transport)
{
    size_t count = 0;
    side probe;

    while (ligi_transports[count] != NULL)
        count++;
    if (i < count) {
        *transport = ligi_transports[i];
        return 1;
    }
    const char *loaded = ligi_transports_loaded[i - count];
    if (loaded == NULL)
        return 0;
    const ligi_net_options plain = {0};
    lig_status status = ligi_transport_load(loaded, transport);
    if (status == LIG_OK) {
        status = side_open(&probe, (*transport)->near, &plain);
        side_close(&probe);
    }
    if (status != LIG_OK)
        printf("skipped: %s\n", lig_error_text());
    return status == LIG_OK;
}

#endif
