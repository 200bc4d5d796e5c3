/* Refs after a reconnect, with a server that does not answer. */
#include "base/test.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/service.h"
#include "store/serve/client/client_request.h"
#include "store/serve/client/packs/client_pins.h"
#include "store/serve/message/served_state.h"

#include <ligament/store.h>

#include <stdio.h>

/* Answers what it likes; everything is guarded by the lock of `net`. */
typedef struct mute_server {
    ligi_net *net;
    int connections, resolves;
    int silent; /* so many connections get no reply to RESOLVE */
    int ending; /* so many end at the first STAT */
} mute_server;

static lig_status met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    mute_server *self = context;
    ligi_writer bytes = {0};
    (void)link, (void)hello;
    self->connections++;
    ligi_served_welcome_put(&bytes, &(ligi_served_welcome){.lease_ns = UINT64_C(60000000000),
                                                           .flight_bytes_max = 1 << 26,
                                                           .read_bytes_max = 1 << 23,
                                                           .request_max = 256});
    memcpy(reply->data, bytes.data, bytes.bytes);
    reply->bytes = bytes.bytes;
    ligi_writer_fini(&bytes);
    return LIG_OK;
}

static void answer(ligi_link *link, const ligi_served_head *to, lig_status status,
                   const ligi_writer *body)
{
    uint8_t bytes[LIGI_SERVED_HEAD_BYTES + LIGI_SERVED_INSIDE_BYTES];
    ligi_served_head head = {.op = to->op,
                             .flags = LIGI_SERVED_REPLY,
                             .status = (uint32_t)status,
                             .id = to->id,
                             .body_bytes = body->bytes};
    ligi_served_head_put(&head, bytes);
    if (body->bytes)
        memcpy(bytes + LIGI_SERVED_HEAD_BYTES, body->data, body->bytes);
    const ligi_send send = {.head = bytes, .head_bytes = LIGI_SERVED_HEAD_BYTES + body->bytes};
    (void)ligi_net_send(link, &send, NULL);
}

static lig_status head(void *context, ligi_link *link, const ligi_arrival *arrival,
                       ligi_landing *landing)
{
    mute_server *self = context;
    ligi_served_head asked;
    ligi_writer body = {0};
    (void)landing;
    LIG_TRY(
        ligi_served_head_get(arrival->head, arrival->head_bytes, arrival->payload_bytes, &asked));
    if (asked.op == LIGI_SERVED_PING) {
        answer(link, &asked, LIG_OK, &body);
    } else if (asked.op == LIGI_SERVED_RESOLVE && self->connections > self->silent) {
        self->resolves++;
        ligi_served_error_put(&body, &(ligi_served_error){0, "it is gone"});
        answer(link, &asked, LIG_E_NOTFOUND, &body);
    } else if (asked.op == LIGI_SERVED_STAT) {
        if (self->connections <= self->ending)
            return lig_fail(LIG_E_CLOSED, "the test ends this connection");
        ligi_served_stats_put(&body, &(lig_store_stats){.models = 7});
        answer(link, &asked, LIG_OK, &body);
    }
    ligi_writer_fini(&body);
    return LIG_OK;
}

static void arrived(void *context, ligi_link *link, void *token)
{
    (void)context, (void)link, (void)token;
}

static void sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)context, (void)link, (void)token, (void)status;
}

static void lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    (void)context, (void)status, (void)sentence;
    ligi_link_close(link, NULL);
}

static const ligi_net_hooks hooks = {met, head, arrived, sent, lost, NULL};

/* The connection on which the server answers pings only is given up, and the next one works. */
static void test_no_answer(void **state)
{
    mute_server self = {.ending = 1, .silent = 2};
    char address[LIGI_ADDRESS_BYTES_MAX], uri[LIGI_ADDRESS_BYTES_MAX + 64];
    lig_store *store = NULL;
    lig_store_stats stats;
    (void)state;
    assert_ok(
        ligi_net_open(&self.net, &(ligi_net_options){.group = LIGI_SERVED_GROUP, .background = 1}));
    assert_ok(ligi_net_serve(self.net, LIGI_SERVICE_STORE, &hooks, &self));
    assert_ok(ligi_net_listen(self.net, "tcp://127.0.0.1:0", address));
    snprintf(uri, sizeof uri, "ligament://%s?transport=tcp&retry=60&liveness_ms=1000",
             address + strlen("tcp://"));
    assert_ok(lig_store_open(&store, uri));
    ligi_client_pins_add(store->volume->self, (ligi_lease){1, 5}, 11);
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 7);
    ligi_net_lock(self.net);
    assert_true(self.connections >= 3);
    assert_true(self.resolves > 0);
    ligi_net_unlock(self.net);
    lig_store_close(store);
    ligi_net_close(self.net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
