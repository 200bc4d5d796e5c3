/* What every transport of builtin.def must do, between two endpoints of one process. What needs a
 * second process is in net_death_test.c. */
#include "base/clock.h"
#include "base/test.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_receive.h"
#include "net/link/link_send.h"
#include "net/net_side.h"
#include "net/progress.h"
#include "net/transport.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const ligi_transport_ops *transport; /* the one under test */

static int soak; /* also what takes long: 1 GiB there and back */

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random_state >> 33;
}

static void fill(uint8_t *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 9));
}

/* A pair of endpoints: the server has a thread, the client is driven by the test. */
static void open_pair(side *server, side *client, const ligi_net_options *options)
{
    ligi_net_options with = options ? *options : (ligi_net_options){0};
    const ligi_net_options plain = {0};

    with.background = 1;
    assert_ok(side_open(server, transport->near, &with));
    assert_ok(side_open(client, NULL, &plain));
}

static ligi_link *meet(side *server, side *client)
{
    ligi_link *link;

    size_t before = client->met;
    assert_ok(side_connect(client, server->address, "tester", &link));
    assert_ok(side_wait(client, &client->met, before + 1));
    assert_true(ligi_link_up(link));
    return link;
}

static void close_pair(side *server, side *client)
{
    side_close(client);
    side_close(server);
}

static void meets_and_says_goodbye(void **state)
{
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    ligi_link *link = meet(&server, &client);
    assert_string_equal(client.hello, "echo of tester");
    assert_string_equal(ligi_link_scheme(link), transport->scheme);
    ligi_link_close(link, "enough");
    /* The server's thread may hear it at any time: asked under its lock. */
    assert_ok(side_wait(&server, &server.lost, 1));
    ligi_net_lock(server.net);
    assert_status(server.lost_status, LIG_E_CLOSED);
    assert_non_null(strstr(server.sentence, "enough"));
    assert_string_equal(server.hello, "tester");
    ligi_net_unlock(server.net);
    close_pair(&server, &client);
}

static void send_one(ligi_link *link, uint64_t number, side_message *message)
{
    struct iovec pieces[4];
    size_t at = 0, count = 0;
    int done;

    fill(message->head, message->head_bytes, number);
    fill(message->payload, message->payload_bytes, number + 1);
    for (; count < 3; count++) {
        size_t bytes = random_next() % (message->payload_bytes - at + 1);
        pieces[count] = (struct iovec){message->payload + at, bytes};
        at += bytes;
    }
    pieces[count++] = (struct iovec){message->payload + at, message->payload_bytes - at};
    ligi_send send = {.head = message->head,
                      .head_bytes = message->head_bytes,
                      .iov = pieces,
                      .count = count,
                      .token = message};
    send.flags = random_next() % 4 == 0 ? LIGI_SEND_MORE : 0;
    assert_ok(ligi_net_send(link, &send, &done));
    if (message->payload_bytes == 0)
        assert_int_equal(done, 1);
}

static void keeps_order_and_bytes(void **state)
{
    enum { COUNT = 600 };
    side_message *messages[COUNT];
    side server, client;

    (void)state;
    random_state = 7;
    open_pair(&server, &client, NULL);
    server.echo = 1;
    client.keep = 1;
    ligi_link *link = meet(&server, &client);
    for (size_t i = 0; i < COUNT; i++) {
        size_t scale = random_next() % 5 == 0 ? 300000 : 2000;
        size_t head = random_next() % 9 == 0 ? LIGI_HEAD_BYTES_MAX : random_next() % 700;
        messages[i] = side_message_make(link, head, random_next() % scale);
        send_one(link, i, messages[i]);
        if (random_next() % 16 == 0)
            assert_ok(ligi_net_poll(client.net));
    }
    assert_ok(side_wait(&client, &client.arrived, COUNT));
    side_message *got = client.first;
    for (size_t i = 0; i < COUNT; i++, got = got->next) {
        assert_int_equal(got->head_bytes, messages[i]->head_bytes);
        assert_int_equal(got->payload_bytes, messages[i]->payload_bytes);
        assert_memory_equal(got->head, messages[i]->head, got->head_bytes);
        assert_memory_equal(got->payload, messages[i]->payload, got->payload_bytes);
    }
    ligi_net_stats stats;
    ligi_net_stats_get(client.net, &stats);
    assert_int_equal(stats.sent_count, COUNT);
    assert_int_equal(stats.received_count, COUNT);
    close_pair(&server, &client);
    for (size_t i = 0; i < COUNT; i++)
        side_message_free(messages[i]);
}

static void echo_of(side *client, ligi_link *link, size_t bytes)
{
    side_message *message = side_message_make(link, 5, bytes);
    size_t before = client->arrived;

    side_forget(client);
    send_one(link, bytes, message);
    assert_ok(side_wait(client, &client->arrived, before + 1));
    assert_int_equal(client->first->payload_bytes, bytes);
    assert_true(memcmp(client->first->payload, message->payload, bytes) == 0);
    side_forget(client);
    side_message_free(message);
}

static void carries_all_sizes(void **state)
{
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    server.echo = 1;
    client.keep = 1;
    ligi_link *link = meet(&server, &client);
    for (size_t bytes = 1; bytes <= (size_t)32 << 20; bytes *= 8) {
        echo_of(&client, link, bytes - 1);
        echo_of(&client, link, bytes);
        echo_of(&client, link, bytes + 1);
    }
    if (soak)
        echo_of(&client, link, (size_t)1 << 30);
    close_pair(&server, &client);
}

/* Neither reads before both have sent: a blocking send would deadlock. */
static void large_ones_cross(void **state)
{
    const ligi_net_options plain = {0};
    side one, two;
    ligi_link *link;
    int done;

    (void)state;
    assert_ok(side_open(&one, transport->near, &plain));
    assert_ok(side_open(&two, NULL, &plain));
    assert_ok(side_connect(&two, one.address, "x", &link));
    assert_true(side_both(&one, &two, &one.met, 1) && side_both(&one, &two, &two.met, 1));
    size_t bytes = (size_t)24 << 20;
    uint8_t *memory = calloc(1, bytes);
    struct iovec iov = {memory, bytes};
    ligi_send send = {.head = "h", .head_bytes = 1, .iov = &iov, .count = 1, .token = memory};
    assert_ok(ligi_net_send(link, &send, &done));
    assert_int_equal(done, 0);
    assert_ok(ligi_net_send(one.links[0], &send, &done));
    assert_int_equal(done, 0);
    assert_true(side_both(&one, &two, &one.arrived, 1));
    assert_true(side_both(&one, &two, &two.arrived, 1));
    assert_true(side_both(&one, &two, &one.sent, 1));
    assert_true(side_both(&one, &two, &two.sent, 1));
    assert_status(one.sent_status, LIG_OK);
    free(memory);
    close_pair(&one, &two);
}

static void many_peers(void **state)
{
    enum { PEERS = 64, EACH = 20 };
    ligi_link *links[PEERS];
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    server.echo = 1;
    for (size_t i = 0; i < PEERS; i++)
        assert_ok(side_connect(&client, server.address, "one of many", &links[i]));
    assert_ok(side_wait(&client, &client.met, PEERS));
    for (size_t i = 0; i < PEERS * EACH; i++) {
        ligi_send send = {.head = &i, .head_bytes = sizeof i};
        assert_ok(ligi_net_send(links[i % PEERS], &send, NULL));
    }
    assert_ok(side_wait(&client, &client.arrived, PEERS * EACH));
    close_pair(&server, &client);
}

/* The server does not read: no thread drives it. */
static void open_deaf(side *server, side *client, ligi_link **link, uint32_t queue_max)
{
    const ligi_net_options plain = {0}, narrow = {.queue_max = queue_max};

    assert_ok(side_open(server, transport->near, &plain));
    assert_ok(side_open(client, NULL, &narrow));
    assert_ok(side_connect(client, server->address, "x", link));
    assert_true(side_both(server, client, &server->met, 1));
    assert_true(side_both(server, client, &client->met, 1));
}

static void cancels_what_waits(void **state)
{
    side server, client;
    ligi_link *link;
    int done, first, second, absent;

    (void)state;
    open_deaf(&server, &client, &link, 0);
    size_t bytes = (size_t)32 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &first};
    assert_ok(ligi_net_send(link, &send, &done));
    assert_int_equal(done, 0);
    send.token = &second;
    assert_ok(ligi_net_send(link, &send, &done));
    assert_int_equal(done, 0);
    assert_status(ligi_net_cancel(link, &first), LIG_E_BUSY);
    assert_status(ligi_net_cancel(link, &absent), LIG_E_NOTFOUND);
    assert_ok(ligi_net_cancel(link, &second));
    assert_int_equal(client.sent, 1);
    assert_status(client.sent_status, LIG_E_CLOSED);
    /* What was behind it still arrives. */
    ligi_send last = {.head = "last", .head_bytes = 4};
    assert_ok(ligi_net_send(link, &last, NULL));
    server.keep = 1;
    assert_true(side_both(&server, &client, &server.arrived, 2));
    assert_int_equal(server.first->payload_bytes, bytes);
    assert_int_equal(server.first->next->head_bytes, 4);
    free(iov.iov_base);
    close_pair(&server, &client);
}

static void queues_end_somewhere(void **state)
{
    side server, client;
    ligi_link *link;
    int done;

    (void)state;
    open_deaf(&server, &client, &link, 8);
    size_t bytes = (size_t)16 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    lig_status status = LIG_OK;
    for (int i = 0; i < 100 && status == LIG_OK; i++)
        status = ligi_net_send(link, &send, &done);
    assert_status(status, LIG_E_BUSY);
    assert_int_equal(ligi_link_queued(link), 8);
    /* Closing gives all of it back before it returns. */
    size_t queued = ligi_link_queued(link), before = client.sent;
    ligi_link_close(link, NULL);
    assert_true(client.sent - before == queued);
    assert_status(client.sent_status, LIG_E_CLOSED);
    assert_true(side_both(&server, &client, &server.lost, 1));
    assert_status(server.lost_status, LIG_E_PEER);
    free(iov.iov_base);
    close_pair(&server, &client);
}

static void diverts_a_landing(void **state)
{
    side server, client;
    ligi_link *link;
    int done;

    (void)state;
    open_deaf(&server, &client, &link, 0);
    size_t bytes = (size_t)32 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    memset(iov.iov_base, 1, bytes);
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    assert_ok(ligi_net_send(link, &send, &done));
    server.keep = 1;
    assert_true(side_both(&server, &client, &server.landing, 1));
    assert_status(ligi_net_divert(server.links[0], &send), LIG_E_NOTFOUND);
    if (server.arrived == 0) {
        /* The memory is taken away: under ASan a write into it ends the test. */
        assert_ok(ligi_net_divert(server.links[0], server.arriving));
        free(server.arriving->payload);
        server.arriving->payload = NULL;
    }
    /* UCX cannot turn a landing away: there the link may be lost instead. */
    for (int64_t end = ligi_now_ns() + SIDE_WAIT_NS; server.arrived + server.lost == 0;) {
        assert_true(ligi_now_ns() < end);
        ligi_net_poll(server.net);
        ligi_net_poll(client.net);
    }
    assert_true(server.lost == 0 || strcmp(transport->scheme, "ucx") == 0);
    free(iov.iov_base);
    close_pair(&server, &client);
}

static void throws_away_what_nobody_wants(void **state)
{
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    server.ignore_payload = 1;
    ligi_link *link = meet(&server, &client);
    size_t bytes = (size_t)3 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    int done, all = 0;
    for (int i = 0; i < 3; i++) {
        assert_ok(ligi_net_send(link, &send, &done));
        all += !done;
    }
    assert_ok(side_wait(&client, &client.sent, (size_t)all));
    assert_ok(side_wait(&server, &server.arrived, 3));
    free(iov.iov_base);
    close_pair(&server, &client);
}

static void a_refusal_says_why(void **state)
{
    side server, client;
    ligi_link *link;

    (void)state;
    open_pair(&server, &client, NULL);
    server.refuse_hello = 1;
    assert_ok(side_connect(&client, server.address, "mallory", &link));
    assert_ok(side_wait(&client, &client.lost, 1));
    assert_status(client.lost_status, LIG_E_DENIED);
    assert_non_null(strstr(client.sentence, "we do not like 'mallory'"));
    assert_int_equal(server.met, 0);
    assert_int_equal(server.lost, 0);
    ligi_net_lock(server.net);
    server.refuse_hello = 0;
    server.refuse_head = 1;
    ligi_net_unlock(server.net);
    link = meet(&server, &client);
    ligi_send send = {.head = "oops", .head_bytes = 4};
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_ok(side_wait(&client, &client.lost, 2));
    assert_status(client.lost_status, LIG_E_MISMATCH);
    assert_non_null(strstr(client.sentence, "head of 4 bytes is not for us"));
    assert_ok(side_wait(&server, &server.lost, 1));
    close_pair(&server, &client);
}

static void nobody_there(void **state)
{
    const ligi_net_options plain = {0};
    char address[LIGI_ADDRESS_BYTES_MAX];
    side server, client;
    ligi_link *link;

    (void)state;
    assert_ok(side_open(&server, transport->near, &plain));
    memcpy(address, server.address, sizeof address);
    side_close(&server);
    assert_ok(side_open(&client, NULL, &plain));
    lig_status status = side_connect(&client, address, "x", &link);
    if (status == LIG_OK) {
        assert_ok(side_wait(&client, &client.lost, 1));
        assert_status(client.lost_status, LIG_E_PEER);
    } else {
        assert_status(status, LIG_E_PEER);
    }
    /* With retry it is met as soon as it listens; without a listener the time runs out. */
    ligi_connect again = {
        .address = address, .service = LIGI_SERVICE_TEST, .retry = 1, .timeout_ns = 50000000};
    size_t before = client.lost;
    assert_ok(ligi_net_connect(client.net, &again, &link));
    assert_ok(side_wait(&client, &client.lost, before + 1));
    assert_status(client.lost_status, LIG_E_TIMEOUT);
    again.timeout_ns = SIDE_WAIT_NS;
    assert_ok(ligi_net_connect(client.net, &again, &link));
    assert_ok(ligi_net_poll(client.net));
    assert_ok(side_open(&server, address, &plain));
    assert_true(side_both(&server, &client, &client.met, 1));
    close_pair(&server, &client);
}

static void cards_lead_there(void **state)
{
    uint8_t card[LIGI_CARD_BYTES_MAX];
    size_t bytes = sizeof card;
    side server, client;
    ligi_link *link;

    (void)state;
    open_pair(&server, &client, NULL);
    assert_ok(ligi_net_card(server.net, NULL, card, &bytes));
    ligi_connect connect = {.card = card, .card_bytes = bytes, .service = LIGI_SERVICE_TEST};
    if (transport->clear) { /* not by default, but if the fabric is trusted */
        assert_status(ligi_net_connect(client.net, &connect, &link), LIG_E_NOTFOUND);
        side_close(&client);
        assert_ok(side_open(&client, NULL, &(ligi_net_options){.fabric = LIGI_FABRIC_ANY}));
    }
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_ok(side_wait(&client, &client.met, 1));
    assert_string_equal(ligi_link_scheme(link), transport->scheme);
    connect.only = "pigeon";
    assert_status(ligi_net_connect(client.net, &connect, &link), LIG_E_NOTFOUND);
    connect.only = transport->scheme;
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_ok(side_wait(&client, &client.met, 2));
    close_pair(&server, &client);
}

static int never(void *context)
{
    (void)context;
    return 0;
}

static void waiting_ends(void **state)
{
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    meet(&server, &client);
    assert_status(ligi_net_wait(client.net, never, NULL, 1000000), LIG_E_TIMEOUT);
    assert_status(ligi_net_wait(client.net, never, NULL, 0), LIG_E_TIMEOUT);
    assert_true(client.ticks > 0);
    close_pair(&server, &client);
}

static void a_forked_child_has_nothing(void **state)
{
    const ligi_net_options plain = {0};
    side server, client;
    ligi_link *link;
    int result = 0;

    (void)state;
    assert_ok(side_open(&server, transport->near, &plain));
    assert_ok(side_open(&client, NULL, &plain));
    assert_ok(side_connect(&client, server.address, "x", &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    pid_t child = fork();
    if (child == 0) {
        ligi_send send = {.head = "x", .head_bytes = 1};
        int ok = ligi_net_poll(client.net) == LIG_E_CLOSED &&
                 ligi_net_send(link, &send, NULL) == LIG_E_CLOSED;
        ligi_net_close(client.net);
        ligi_net_close(server.net);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    server.echo = 1;
    ligi_send send = {.head = "still here", .head_bytes = 10};
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(side_both(&server, &client, &client.arrived, 1));
    close_pair(&server, &client);
}

/* Many threads on one endpoint: each waits for its own answers. */
typedef struct talker {
    side *client;
    ligi_link *link;
    pthread_t thread;
    int failed;
} talker;

static void *talk(void *context)
{
    talker *self = context;

    for (size_t i = 0; i < 200; i++) {
        ligi_send send = {.head = &i, .head_bytes = sizeof i};
        ligi_net_lock(self->client->net);
        size_t before = self->client->arrived;
        ligi_net_unlock(self->client->net);
        if (ligi_net_send(self->link, &send, NULL) != LIG_OK ||
            side_wait(self->client, &self->client->arrived, before + 1) != LIG_OK)
            self->failed = 1;
    }
    return NULL;
}

static void threads_share_an_endpoint(void **state)
{
    enum { THREADS = 4 };
    talker talkers[THREADS];
    side server, client;

    (void)state;
    open_pair(&server, &client, NULL);
    server.echo = 1;
    for (int i = 0; i < THREADS; i++)
        talkers[i] = (talker){.client = &client, .link = meet(&server, &client)};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(talkers[i].thread, NULL);
        assert_int_equal(talkers[i].failed, 0);
    }
    assert_ok(side_wait(&client, &client.arrived, THREADS * 200));
    close_pair(&server, &client);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(meets_and_says_goodbye),
    cmocka_unit_test(keeps_order_and_bytes),
    cmocka_unit_test(carries_all_sizes),
    cmocka_unit_test(large_ones_cross),
    cmocka_unit_test(many_peers),
    cmocka_unit_test(cancels_what_waits),
    cmocka_unit_test(queues_end_somewhere),
    cmocka_unit_test(diverts_a_landing),
    cmocka_unit_test(throws_away_what_nobody_wants),
    cmocka_unit_test(a_refusal_says_why),
    cmocka_unit_test(nobody_there),
    cmocka_unit_test(cards_lead_there),
    cmocka_unit_test(waiting_ends),
    cmocka_unit_test(a_forked_child_has_nothing),
    cmocka_unit_test(threads_share_an_endpoint),
};

/* net_conformance_test [scheme|all [soak]] */
int main(int argc, char **argv)
{
    int failed = 0;

    soak = argc > 2 && strcmp(argv[2], "soak") == 0;
    for (size_t i = 0; side_transport(i, &transport); i++) {
        if (argc > 1 && strcmp(argv[1], "all") != 0 && strcmp(argv[1], transport->scheme) != 0)
            continue;
        failed += _cmocka_run_group_tests(transport->scheme, tests, sizeof tests / sizeof *tests,
                                          NULL, NULL);
    }
    return failed;
}
