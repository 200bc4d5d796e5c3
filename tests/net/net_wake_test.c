/* Threads that drive, sleep and hold the lock, over every transport: what one thread begins is
 * finished by another that was asleep at the time, no thread is locked out, and hooks may send. */
#include "base/clock.h"
#include "base/test.h"
#include "net/link/link_send.h"
#include "net/net_side.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/service.h"
#include "net/transport.h"
#include "thread_state.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

static const ligi_transport_ops *transport; /* the one under test */

static const ligi_net_options threaded = {.background = 1, .hello_ns = INT64_C(3600000000000)};

/* Until the endpoint's own thread has gone to sleep. */
static void await_sleep(side *self)
{
    ligi_net_stats before, now;

    ligi_net_stats_get(self->net, &before);
    ligi_net_wake(self->net);
    do {
        sched_yield();
        ligi_net_stats_get(self->net, &now);
    } while (now.sleeps == before.sleeps);
}

/* Without ticks: who sleeps is woken by what happens, or not at all, also by a
 * transport that was not there when the endpoint's thread went to sleep. */
static void open_timeless(side *self, const char *where)
{
    static const ligi_net_hooks hooks = {side_met,  side_head, side_arrived,
                                         side_sent, side_lost, NULL};

    assert_ok(side_open(self, NULL, &threaded));
    ligi_net_unserve(self->net, LIGI_SERVICE_TEST);
    assert_ok(ligi_net_serve(self->net, LIGI_SERVICE_TEST, &hooks, self));
    await_sleep(self);
    if (where != NULL)
        assert_ok(ligi_net_listen(self->net, where, self->address));
}

/* Looks on, and drives nothing. */
static void await(side *self, const size_t *counter, size_t wanted)
{
    int64_t end = ligi_now_ns() + SIDE_WAIT_NS;
    size_t reached = 0;

    while (reached < wanted) {
        assert_true(ligi_now_ns() < end);
        sched_yield();
        ligi_net_lock(self->net);
        reached = *counter;
        ligi_net_unlock(self->net);
    }
}

static void open_pair(side *server, side *client)
{
    open_timeless(server, transport->near);
    open_timeless(client, NULL);
}

static ligi_link *open_link(side *server, side *client)
{
    ligi_link *link;

    open_pair(server, client);
    assert_ok(side_connect(client, server->address, "x", &link));
    await(client, &client->met, 1);
    await(server, &server->met, 1);
    return link;
}

static void close_pair(side *server, side *client)
{
    side_close(client);
    side_close(server);
}

static void a_sleeper_finishes_what_others_begin(void **state)
{
    size_t bytes = (size_t)8 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    side server, client;
    ligi_link *link;
    int done;

    (void)state;
    open_pair(&server, &client);
    for (size_t i = 1; i <= 3; i++) { /* the first is woken by the deadline it sets */
        await_sleep(&client);
        assert_ok(side_connect(&client, server.address, "x", &link));
        await(&client, &client.met, i);
    }
    for (size_t i = 1; i <= 3; i++) {
        size_t sent = client.sent;
        await_sleep(&client);
        assert_ok(ligi_net_send(link, &send, &done));
        await(&server, &server.arrived, i);
        if (!done)
            await(&client, &client.sent, sent + 1);
    }
    close_pair(&server, &client);
    free(iov.iov_base);
}

/* More than UCX takes at once, and less than is acknowledged: the peer stands still meanwhile, and
 * nothing it says later tells the sleeper that there is room. */
static void a_sleeper_goes_on_with_what_did_not_fit(void **state)
{
    enum { MESSAGES = 100, BYTES = 8000 };
    static uint8_t payload[BYTES];
    struct iovec iov = {payload, BYTES};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    side server, client;
    int done;

    (void)state;
    ligi_link *link = open_link(&server, &client);
    await_sleep(&client);
    ligi_net_lock(server.net);
    for (size_t i = 0; i < MESSAGES; i++)
        assert_ok(ligi_net_send(link, &send, &done));
    ligi_net_unlock(server.net);
    await(&server, &server.arrived, MESSAGES);
    close_pair(&server, &client);
}

static void say_word(ligi_link *link)
{
    ligi_send send = {.head = "word", .head_bytes = 4};

    assert_ok(ligi_net_send(link, &send, NULL));
}

static int rests(const char *tid)
{
    char where[40];

    snprintf(where, sizeof where, "self/task/%.20s", tid);
    char state = thread_state(where);
    return state == 'S' || state == '\0';
}

/* Until every thread of ours but this one is at rest, or has ended. */
static void await_rest(void)
{
    int busy = 1;

    while (busy) {
        DIR *threads = opendir("/proc/self/task");
        assert_non_null(threads);
        busy = 0;
        for (struct dirent *one; (one = readdir(threads)) != NULL;)
            busy += one->d_name[0] != '.' && atoi(one->d_name) != gettid() && !rests(one->d_name);
        closedir(threads);
        sched_yield();
    }
}

/* A caller takes what came, the peer's ring of the bell included, and goes: the sleeper has to hear
 * the next all the same. */
static void a_sleeper_hears_when_callers_have_gone(void **state)
{
    size_t said = 0;
    side server, client;

    (void)state;
    open_link(&server, &client);
    for (int i = 0; i < 20; i++) {
        await_sleep(&client);
        await_rest();
        say_word(server.links[0]);
        assert_ok(ligi_net_poll(client.net));
        await(&client, &client.arrived, ++said);
        await_rest();
        say_word(server.links[0]);
        await(&client, &client.arrived, ++said);
    }
    close_pair(&server, &client);
}

/* --- waits that are over at once --- */

static int just_looks(void *context)
{
    (void)context;
    return 1;
}

/* Whoever only looks, however often, drives nothing: the endpoint's own thread must not take it for
 * one who does, or nobody would. */
static void who_only_looks_puts_nobody_off(void **state)
{
    side self;

    (void)state;
    open_timeless(&self, transport->near);
    ligi_net_lock(self.net);
    uint64_t before = self.net->drives;
    ligi_net_unlock(self.net);
    for (int i = 0; i < 100; i++)
        assert_ok(ligi_net_wait(self.net, just_looks, NULL, LIG_FOREVER));
    ligi_net_lock(self.net);
    assert_int_equal(self.net->drives, before);
    ligi_net_unlock(self.net);
    side_close(&self);
}

/* --- hooks that send --- */

enum { CHAIN = 3 };

/* In one round: the first message waits for company, the second brings it along, and `sent` of the
 * first sends the third while the second is still in the queue. */
typedef struct chatty {
    side side;
    struct iovec iov[CHAIN];
    size_t told[CHAIN], ends;
} chatty;

static void say(chatty *self, ligi_link *link, size_t i, uint32_t flags)
{
    ligi_send send = {
        .head = &i, .head_bytes = sizeof i, .iov = &self->iov[i], .count = 1, .flags = flags};
    int done;

    send.token = &self->iov[i];
    if (ligi_net_send(link, &send, &done) != LIG_OK || !done)
        return;
    self->told[i]++;
    self->ends++;
    memset(self->iov[i].iov_base, 0, self->iov[i].iov_len); /* it is ours again */
}

static void chatty_arrived(void *context, ligi_link *link, void *token)
{
    chatty *self = context;

    side_unlist(&self->side, link);
    side_message_free(token);
    say(self, link, 0, LIGI_SEND_MORE);
    say(self, link, 1, 0);
}

static void chatty_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    chatty *self = context;
    size_t i = (size_t)((struct iovec *)token - self->iov);

    self->told[i] += status == LIG_OK;
    self->ends++;
    memset(self->iov[i].iov_base, 0, self->iov[i].iov_len);
    if (i == 0)
        say(self, link, 2, 0);
}

static const ligi_net_hooks chatty_hooks = {side_met,    side_head, chatty_arrived,
                                            chatty_sent, side_lost, NULL};

static void check_chain(const side *server, const size_t *sizes)
{
    const side_message *got = server->first;

    for (size_t i = 0; i < CHAIN; i++, got = got->next) {
        assert_int_equal(got->payload_bytes, sizes[i]);
        assert_memory_equal(got->head, &i, sizeof i);
        for (size_t at = 0; at < sizes[i]; at++)
            if (got->payload[at] != i + 1)
                fail_msg("byte %zu of message %zu is %u", at, i, got->payload[at]);
    }
}

static void send_chain(const size_t *sizes)
{
    const ligi_net_options plain = {0};
    chatty client = {0};
    side server;
    ligi_link *link;

    assert_ok(side_open(&server, transport->near, &plain));
    server.keep = 1;
    assert_ok(ligi_net_open(&client.side.net, &plain));
    assert_ok(ligi_net_serve(client.side.net, LIGI_SERVICE_TEST, &chatty_hooks, &client));
    for (size_t i = 0; i < CHAIN; i++) {
        client.iov[i] = (struct iovec){malloc(sizes[i]), sizes[i]};
        memset(client.iov[i].iov_base, (int)i + 1, sizes[i]);
    }
    assert_ok(side_connect(&client.side, server.address, "x", &link));
    assert_true(side_both(&server, &client.side, &client.side.met, 1));
    assert_true(side_both(&server, &client.side, &server.met, 1));
    ligi_send go = {.head = "go", .head_bytes = 2};
    assert_ok(ligi_net_send(server.links[0], &go, NULL));
    assert_true(side_both(&server, &client.side, &server.arrived, CHAIN));
    assert_true(side_both(&server, &client.side, &client.ends, CHAIN));
    check_chain(&server, sizes);
    for (size_t i = 0; i < CHAIN; i++) {
        assert_int_equal(client.told[i], 1);
        free(client.iov[i].iov_base);
    }
    side_close(&client.side);
    side_close(&server);
}

static void sent_may_send(void **state)
{
    /* The second message is too large to go at once, or goes with the first. */
    static const size_t sizes[][CHAIN] = {{40000, (size_t)9 << 20, (size_t)5 << 20},
                                          {400, 20000, (size_t)5 << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        send_chain(sizes[i]);
}

/* --- a thread that never rests --- */

typedef struct restless {
    int64_t end_ns;
    int over, starved;
} restless;

/* Always something to do: no round comes back empty. */
static int64_t restless_tick(void *context, int64_t now_ns)
{
    restless *self = context;

    if (self->over)
        return INT64_MAX;
    self->end_ns = self->end_ns ? self->end_ns : now_ns + SIDE_WAIT_NS;
    self->starved = now_ns >= self->end_ns;
    return self->starved ? INT64_MAX : now_ns;
}

static void a_busy_thread_lets_others_in(void **state)
{
    ligi_net_hooks hooks = side_hooks;
    restless busy = {0};
    ligi_net *net;

    (void)state;
    hooks.tick = restless_tick;
    assert_ok(ligi_net_open(&net, &threaded));
    assert_ok(ligi_net_serve(net, LIGI_SERVICE_TEST, &hooks, &busy));
    ligi_net_wake(net);
    for (int began = 0; !began;) {
        ligi_net_lock(net);
        began = busy.end_ns != 0;
        ligi_net_unlock(net);
    }
    for (int i = 0; i < 100; i++) {
        ligi_net_lock(net);
        assert_false(busy.starved);
        busy.over = i == 99;
        ligi_net_unlock(net);
    }
    ligi_net_close(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sleeper_finishes_what_others_begin),
    cmocka_unit_test(a_sleeper_goes_on_with_what_did_not_fit),
    cmocka_unit_test(a_sleeper_hears_when_callers_have_gone),
    cmocka_unit_test(who_only_looks_puts_nobody_off),
    cmocka_unit_test(sent_may_send),
};

/* net_wake_test [scheme] */
int main(int argc, char **argv)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(a_busy_thread_lets_others_in)};
    setenv("UCX_KEEPALIVE_INTERVAL", "inf", 1); /* what UCX does by the clock wakes sleepers too */
    int failed = cmocka_run_group_tests(alone, NULL, NULL);

    for (size_t i = 0; side_transport(i, &transport); i++)
        if (argc < 2 || strcmp(argv[1], transport->scheme) == 0)
            failed += _cmocka_run_group_tests(transport->scheme, tests,
                                              sizeof tests / sizeof *tests, NULL, NULL);
    return failed;
}
