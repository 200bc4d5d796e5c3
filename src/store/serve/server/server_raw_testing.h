/* For tests of the server: a client that speaks the protocol word by word, and can break it. */
#ifndef LIGI_SERVER_RAW_TESTING_H
#define LIGI_SERVER_RAW_TESTING_H

#include "base/error.h"
#include "base/test.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "store/serve/message/served_head.h"

#include <stdio.h>
#include <stdlib.h>

#define RAW_NS INT64_C(60000000000)

/* The last message of each kind that came. */
typedef struct raw_client {
    ligi_net *net;
    ligi_link *link;
    int met, lost;
    lig_status status; /* of lost */
    char sentence[512];
    ligi_served_welcome welcome;
    uint8_t welcome_bytes[LIGI_HELLO_BYTES_MAX];
    uint64_t next_id, next_sequence;
    size_t replies, needs, dones;
    ligi_served_head reply, need;
    lig_status save_status; /* of the last reply to a SAVE */
    uint8_t reply_body[LIGI_HEAD_BYTES_MAX], need_body[LIGI_HEAD_BYTES_MAX];
    uint64_t waiting; /* id of the reply that is waited for; 0: any */
    int answered;
} raw_client;

static lig_status raw_met(void *context, ligi_link *link, const ligi_hello *hello,
                          ligi_reply *reply)
{
    raw_client *self = context;
    (void)link, (void)reply;
    memcpy(self->welcome_bytes, hello->data, hello->bytes);
    self->met = 1;
    return ligi_served_welcome_get(self->welcome_bytes, hello->bytes, &self->welcome);
}

static lig_status raw_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                           ligi_landing *landing)
{
    raw_client *self = context;
    ligi_served_head head;
    (void)link, (void)landing; /* data are thrown away */
    LIG_TRY(
        ligi_served_head_get(arrival->head, arrival->head_bytes, arrival->payload_bytes, &head));
    if (head.flags & LIGI_SERVED_REPLY) {
        self->replies++;
        if (head.op == LIGI_SERVED_SAVE)
            self->save_status = (lig_status)head.status;
        if (self->waiting && self->waiting != head.id)
            return LIG_OK;
        self->reply = head;
        if (head.body)
            memcpy(self->reply_body, head.body, head.body_bytes);
        self->answered = 1;
    } else if (head.op == LIGI_SERVED_NEED) {
        self->needs++;
        self->need = head;
        memcpy(self->need_body, head.body, head.body_bytes);
    } else {
        self->dones++;
    }
    return LIG_OK;
}

static void raw_arrived(void *context, ligi_link *link, void *token)
{
    (void)context, (void)link, (void)token;
}

static void raw_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context, (void)link, (void)token, (void)status;
}

static void raw_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    raw_client *self = context;
    self->lost = 1;
    self->status = status;
    snprintf(self->sentence, sizeof self->sentence, "%s", sentence);
    self->link = NULL;
    ligi_link_close(link, NULL);
}

static const ligi_net_hooks raw_hooks = {raw_met, raw_head, raw_arrived, raw_sent, raw_lost, NULL};

static int raw_settled(void *context)
{
    const raw_client *self = context;
    return self->met || self->lost;
}

static int raw_is_answered(void *context)
{
    const raw_client *self = context;
    return self->answered || self->lost;
}

static int raw_is_lost(void *context)
{
    return ((const raw_client *)context)->lost;
}

/* Connects as `how` says, whose service is set here. `key`: of a role; NULL: no secret. */
static inline void raw_connect_how(raw_client *self, const char *key, ligi_connect how)
{
    const ligi_net_options options = {
        .group = LIGI_SERVED_GROUP, .secret = key, .secret_bytes = key ? strlen(key) : 0};
    memset(self, 0, sizeof *self);
    how.service = LIGI_SERVICE_STORE;
    assert_ok(ligi_net_open(&self->net, &options));
    assert_ok(ligi_net_serve(self->net, LIGI_SERVICE_STORE, &raw_hooks, self));
    assert_ok(ligi_net_connect(self->net, &how, &self->link));
    assert_ok(ligi_net_wait(self->net, raw_settled, self, RAW_NS));
}

/* Connects to a URI with these bytes as the hello. */
static inline void raw_connect_as(raw_client *self, const char *uri, const char *key,
                                  const ligi_writer *hello)
{
    raw_connect_how(
        self, key,
        (ligi_connect){.address = uri, .hello = hello->data, .hello_bytes = hello->bytes});
}

/* `address`: host:port. */
static inline void raw_connect(raw_client *self, const char *address, const ligi_writer *hello)
{
    char uri[256];
    snprintf(uri, sizeof uri, "tcp://%s", address);
    raw_connect_as(self, uri, NULL, hello);
}

/* A client whose id is filled with `client`, of a process of that number. */
static inline void raw_open_as(raw_client *self, const char *uri, const char *key, uint8_t client,
                               const uint8_t *pass)
{
    ligi_writer bytes = {0};
    ligi_served_hello hello = {.pid = client, .host = "testing"};
    memset(hello.client, client, sizeof hello.client);
    if (pass)
        memcpy(hello.pass, pass, sizeof hello.pass);
    ligi_served_hello_put(&bytes, &hello);
    raw_connect_as(self, uri, key, &bytes);
    ligi_writer_fini(&bytes);
}

static inline void raw_open(raw_client *self, const char *address, uint8_t client)
{
    char uri[256];
    snprintf(uri, sizeof uri, "tcp://%s", address);
    raw_open_as(self, uri, NULL, client, NULL);
}

static inline void raw_close(raw_client *self)
{
    ligi_net_close(self->net);
}

/* Sends a message whose head is as given, with the id, body and data. */
static inline void raw_send(raw_client *self, ligi_served_head head, const ligi_writer *body,
                            const void *data, size_t data_bytes)
{
    uint8_t bytes[LIGI_HEAD_BYTES_MAX];
    struct iovec iov = {(void *)data, data_bytes};
    int done = 0;
    head.body_bytes = body ? body->bytes : 0;
    ligi_served_head_put(&head, bytes);
    if (body && body->bytes)
        memcpy(bytes + LIGI_SERVED_HEAD_BYTES, body->data, body->bytes);
    const ligi_send send = {.head = bytes,
                            .head_bytes = LIGI_SERVED_HEAD_BYTES + head.body_bytes,
                            .iov = &iov,
                            .count = data_bytes > 0};
    ligi_net_lock(self->net);
    if (self->link)
        (void)ligi_net_send(self->link, &send, &done);
    ligi_net_unlock(self->net);
}

/* Waits for the reply to request `id`; its status, with the error text. LIG_E_PEER: lost. */
static inline lig_status raw_wait(raw_client *self, uint64_t id)
{
    self->waiting = id;
    assert_ok(ligi_net_wait(self->net, raw_is_answered, self, RAW_NS));
    if (!self->answered)
        return lig_fail(LIG_E_PEER, "%s", self->sentence);
    self->answered = 0;
    if (self->reply.status) {
        ligi_served_error error;
        assert_ok(ligi_served_error_get(self->reply_body, self->reply.body_bytes, &error));
        return lig_fail((lig_status)self->reply.status, "%s", error.text);
    }
    return LIG_OK;
}

/* One request with a body and its reply. A change has the next sequence number. */
static inline lig_status raw_ask(raw_client *self, ligi_served_op op, const ligi_writer *body)
{
    ligi_served_head head = {.op = (uint16_t)op, .id = ++self->next_id};
    if (ligi_served_op_mutates(op))
        head.number = ++self->next_sequence;
    self->answered = 0;
    raw_send(self, head, body, NULL, 0);
    return raw_wait(self, head.id);
}

static inline lig_status raw_ask_text(raw_client *self, ligi_served_op op, const char *text)
{
    ligi_writer body = {0};
    ligi_served_text_put(&body, text);
    lig_status status = raw_ask(self, op, &body);
    ligi_writer_fini(&body);
    return status;
}

/* Waits until the server has ended the session. */
static inline void raw_expect_lost(raw_client *self)
{
    assert_ok(ligi_net_wait(self->net, raw_is_lost, self, RAW_NS));
}

#endif
