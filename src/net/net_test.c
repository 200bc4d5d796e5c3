/* The core: what modules may do inside hooks, threads that wait, endpoints that close. */
#include "base/clock.h"
#include "base/test.h"
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net_side.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/service.h"

#include <ligament/net.h>

#include <pthread.h>
#include <unistd.h>

static const ligi_net_options plain = {0};

/* A module that closes its link in the hook named by `where`. */
typedef enum where { MET, HEAD, ARRIVED, SENT, LOST, WHERES } where;

typedef struct rash {
    where where;
    size_t called[WHERES];
    uint8_t memory[1 << 16];
    struct iovec iov;
    int again; /* sends again from inside `sent` */
} rash;

static int strikes(rash *self, where here, ligi_link *link)
{
    self->called[here]++;
    if (self->where == here)
        ligi_link_close(link, "rash");
    return self->where == here;
}

static lig_status rash_met(void *context, ligi_link *link, const ligi_hello *hello,
                           ligi_reply *reply)
{
    (void)hello;
    (void)reply;
    strikes(context, MET, link);
    return LIG_OK;
}

static lig_status rash_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                            ligi_landing *landing)
{
    rash *self = context;

    self->iov = (struct iovec){self->memory, arrival->payload_bytes};
    landing->iov = &self->iov;
    landing->count = 1;
    strikes(self, HEAD, link);
    return LIG_OK;
}

static void rash_arrived(void *context, ligi_link *link, void *token)
{
    (void)token;
    strikes(context, ARRIVED, link);
}

static void rash_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    rash *self = context;
    int done;

    (void)token;
    (void)status;
    if (self->again) {
        struct iovec iov = {self->memory, sizeof self->memory};
        ligi_send send = {.iov = &iov, .count = 1};
        ligi_net_send(link, &send, &done);
    }
    strikes(self, SENT, link);
}

static void rash_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    (void)status;
    (void)sentence;
    strikes(context, LOST, link);
}

static const ligi_net_hooks rash_hooks = {rash_met,  rash_head, rash_arrived,
                                          rash_sent, rash_lost, NULL};

static void feed(ligi_net *net, ligi_link *link, size_t count)
{
    static uint8_t bytes[60000];
    struct iovec iov = {bytes, sizeof bytes};
    ligi_send send = {.head = "h", .head_bytes = 1, .iov = &iov, .count = 1};
    int done;

    ligi_net_lock(net);
    for (size_t i = 0; i < count; i++)
        if (ligi_net_send(link, &send, &done) != LIG_OK)
            break;
    ligi_net_unlock(net);
}

static void close_in(where at, const char *address, int again)
{
    char told[LIGI_ADDRESS_BYTES_MAX];
    static rash module;
    ligi_net *net;
    side peer;
    ligi_link *link;

    memset(&module, 0, sizeof module);
    module.where = at;
    module.again = again;
    assert_ok(ligi_net_open(&net, &plain));
    assert_ok(ligi_net_serve(net, LIGI_SERVICE_TEST, &rash_hooks, &module));
    assert_ok(ligi_net_listen(net, address, told));
    assert_ok(side_open(&peer, NULL, &plain));
    assert_ok(side_connect(&peer, told, "victim", &link));
    for (long i = 0; i < 1000000 && module.called[MET] == 0; i++) {
        ligi_net_poll(net);
        ligi_net_poll(peer.net);
    }
    for (long i = 0; i < 1000000 && peer.met + peer.lost == 0; i++) {
        ligi_net_poll(net);
        ligi_net_poll(peer.net);
    }
    if (peer.links[0] != NULL)
        feed(peer.net, link, 40);
    for (long i = 0; i < 3000; i++) {
        ligi_net_poll(net);
        ligi_net_poll(peer.net);
    }
    if (at == MET || at == HEAD || at == ARRIVED) {
        assert_int_equal(module.called[at], 1);
        assert_int_equal(module.called[LOST], 0);
        assert_true(side_wait(&peer, &peer.lost, 1) == LIG_OK);
    }
    side_close(&peer);
    ligi_net_close(net);
}

static void hooks_may_close(void **state)
{
    (void)state;
    for (int at = 0; at < WHERES; at++) {
        close_in((where)at, "inproc:", 0);
        close_in((where)at, "tcp://127.0.0.1:0", 0);
    }
}

/* The module is the one that sends, and closes or sends again when told that something went. */
static void sent_may_do_anything(where at, const char *address, int again)
{
    static rash module;
    ligi_connect connect = {.service = LIGI_SERVICE_TEST};
    ligi_net *net;
    ligi_link *link;
    side peer;

    memset(&module, 0, sizeof module);
    module.where = at;
    module.again = again;
    assert_ok(side_open(&peer, address, &plain));
    assert_ok(ligi_net_open(&net, &plain));
    assert_ok(ligi_net_serve(net, LIGI_SERVICE_TEST, &rash_hooks, &module));
    connect.address = peer.address;
    assert_ok(ligi_net_connect(net, &connect, &link));
    for (long i = 0; i < 1000000 && module.called[MET] == 0; i++) {
        ligi_net_poll(net);
        ligi_net_poll(peer.net);
    }
    feed(net, link, 300);
    for (long i = 0; i < 2000; i++) {
        ligi_net_poll(net);
        ligi_net_poll(peer.net);
    }
    if (at != SENT)
        ligi_link_close(link, NULL);
    ligi_net_close(net);
    assert_true(module.called[SENT] > 0);
    side_close(&peer);
}

static void sent_may_close_and_send(void **state)
{
    static const char *const addresses[] = {"inproc:", "tcp://127.0.0.1:0?receive_buffer=4096"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        sent_may_do_anything(SENT, addresses[i], 0);
        sent_may_do_anything(LOST, addresses[i], 1);
    }
}

static void services_have_one_owner(void **state)
{
    side one, two;
    ligi_link *link;

    (void)state;
    assert_ok(side_open(&one, "inproc:", &plain));
    assert_status(ligi_net_serve(one.net, LIGI_SERVICE_TEST, &side_hooks, &one), LIG_E_EXISTS);
    assert_status(ligi_net_serve(one.net, (ligi_service)99, &side_hooks, &one), LIG_E_INVALID);
    assert_ok(side_open(&two, NULL, &plain));
    assert_ok(ligi_net_serve(two.net, LIGI_SERVICE_STORE, &side_hooks, &two));
    ligi_connect connect = {.address = one.address, .service = LIGI_SERVICE_STORE};
    assert_ok(ligi_net_connect(two.net, &connect, &link));
    assert_true(side_both(&one, &two, &two.lost, 1));
    assert_status(two.lost_status, LIG_E_NOTFOUND);
    assert_non_null(strstr(two.sentence, "service 4"));
    connect.service = LIGI_SERVICE_PARAMS;
    assert_status(ligi_net_connect(two.net, &connect, &link), LIG_E_INVALID);
    /* Ending a service ends its links. */
    assert_ok(side_connect(&two, one.address, "x", &link));
    assert_true(side_both(&one, &two, &one.met, 1));
    ligi_net_unserve(one.net, LIGI_SERVICE_TEST);
    assert_true(side_both(&one, &two, &two.lost, 2));
    assert_status(two.lost_status, LIG_E_CLOSED);
    side_close(&two);
    side_close(&one);
}

static void talks_to_itself(void **state)
{
    side one;
    ligi_link *link;

    (void)state;
    assert_ok(side_open(&one, "inproc:", &plain));
    assert_ok(side_connect(&one, one.address, "me", &link));
    assert_ok(side_wait(&one, &one.met, 2));
    ligi_send send = {.head = "hm", .head_bytes = 2};
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_ok(side_wait(&one, &one.arrived, 1));
    side_close(&one);
}

/* What was sent just before closing, inside a hook or with MORE, still goes. */
static void last_words(const char *address)
{
    ligi_send send = {.head = "farewell", .head_bytes = 8, .flags = LIGI_SEND_MORE};
    side server, client;
    ligi_link *link;

    assert_ok(side_open(&server, address, &plain));
    assert_ok(side_open(&client, NULL, &plain));
    assert_ok(side_connect(&client, server.address, "x", &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    server.echo = server.leave = 1;
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(side_both(&server, &client, &client.lost, 1));
    assert_int_equal(client.arrived, 1);
    assert_status(client.lost_status, LIG_E_CLOSED);
    assert_ok(side_connect(&client, server.address, "x", &link));
    assert_true(side_both(&server, &client, &client.met, 2));
    server.leave = 0;
    assert_ok(ligi_net_send(link, &send, NULL));
    ligi_link_close(link, NULL);
    assert_true(side_both(&server, &client, &server.lost, 1));
    assert_int_equal(server.arrived, 2);
    side_close(&client);
    side_close(&server);
}

static void last_words_are_heard(void **state)
{
    (void)state;
    last_words("inproc:");
    last_words("tcp://127.0.0.1:0");
}

typedef struct waiter {
    ligi_net *net;
    int flag, asked, back;
    lig_status status;
} waiter;

static int flag_is_up(void *context)
{
    waiter *self = context;
    __atomic_store_n(&self->asked, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&self->flag, __ATOMIC_SEQ_CST);
}

static void *wait_for_flag(void *context)
{
    waiter *self = context;
    self->status = ligi_net_wait(self->net, flag_is_up, self, SIDE_WAIT_NS);
    return NULL;
}

static void wait_until_asked(waiter *self)
{
    while (!__atomic_load_n(&self->asked, __ATOMIC_SEQ_CST))
        sched_yield();
}

static void wake_reaches_all(void **state)
{
    enum { THREADS = 4 };
    const ligi_net_options with = {.background = 1, .spin_ns = -1};
    pthread_t threads[THREADS];
    waiter waiters[THREADS];
    ligi_net *net;

    (void)state;
    assert_ok(ligi_net_open(&net, &with));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < THREADS; i++) {
            waiters[i] = (waiter){.net = net};
            pthread_create(&threads[i], NULL, wait_for_flag, &waiters[i]);
        }
        for (int i = 0; i < THREADS; i++)
            wait_until_asked(&waiters[i]);
        for (int i = 0; i < THREADS; i++)
            __atomic_store_n(&waiters[i].flag, 1, __ATOMIC_SEQ_CST);
        ligi_net_wake(net);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_status(waiters[i].status, LIG_OK);
        }
    }
    ligi_net_close(net);
}

static void *wait_and_say(void *context)
{
    waiter *self = context;
    wait_for_flag(self);
    __atomic_store_n(&self->back, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int is_back(void *context)
{
    return __atomic_load_n(&((waiter *)context)->back, __ATOMIC_SEQ_CST);
}

static void wait_until_asleep(ligi_net *net)
{
    while (!atomic_load(&net->asleep))
        sched_yield();
}

/* One has slept as the driver and comes back for the lock; another has it, and looks on and on, so
 * that the first must be counted as wanting it. */
static void who_slept_is_let_in(void **state)
{
    ligi_net *net;

    (void)state;
    assert_ok(ligi_net_open(&net, &plain));
    for (int round = 0; round < 50; round++) {
        waiter one = {.net = net};
        pthread_t thread;
        pthread_create(&thread, NULL, wait_and_say, &one);
        wait_until_asleep(net);
        ligi_net_lock(net);
        __atomic_store_n(&one.flag, 1, __ATOMIC_SEQ_CST);
        ligi_net_hurry(net, LIGI_SERVICE_TEST);
        int64_t end = ligi_now_ns() + SIDE_WAIT_NS;
        while (atomic_load(&net->wanting) == 0 && ligi_now_ns() < end)
            sched_yield();
        assert_int_equal(atomic_load(&net->wanting), 1);
        ligi_net_unlock(net);
        assert_ok(ligi_net_wait(net, is_back, &one, SIDE_WAIT_NS));
        pthread_join(thread, NULL);
    }
    ligi_net_close(net);
}

/* A service that always has something to do, once it has begun. */
typedef struct toil {
    int begun, ticks;
} toil;

static int64_t always_due(void *context, int64_t now_ns)
{
    toil *self = context;
    __atomic_fetch_add(&self->ticks, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&self->begun, __ATOMIC_SEQ_CST) ? now_ns : INT64_MAX;
}

static void wait_until_it_waits_for_the_driver(ligi_net *net)
{
    for (int found = 0; !found; sched_yield()) {
        ligi_net_lock(net);
        found = net->waiters > 0;
        ligi_net_unlock(net);
    }
}

static void wait_until_busy(toil *work)
{
    __atomic_store_n(&work->ticks, 0, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&work->ticks, __ATOMIC_SEQ_CST) < 100)
        sched_yield();
}

/* The driver is never idle, and waits for one whom it has told that it may go. */
static void who_waits_is_let_in(void **state)
{
    static const ligi_net_hooks busy_hooks = {.tick = always_due};
    waiter driver, one;
    pthread_t threads[2];
    ligi_net *net;
    toil work = {0};

    (void)state;
    assert_ok(ligi_net_open(&net, &plain));
    assert_ok(ligi_net_serve(net, LIGI_SERVICE_TEST, &busy_hooks, &work));
    driver = one = (waiter){.net = net};
    pthread_create(&threads[0], NULL, wait_and_say, &driver);
    wait_until_asleep(net);
    pthread_create(&threads[1], NULL, wait_and_say, &one);
    wait_until_it_waits_for_the_driver(net);
    __atomic_store_n(&work.begun, 1, __ATOMIC_SEQ_CST);
    ligi_net_hurry(net, LIGI_SERVICE_TEST);
    wait_until_busy(&work);
    __atomic_store_n(&one.flag, 1, __ATOMIC_SEQ_CST);
    for (int64_t end = ligi_now_ns() + SIDE_WAIT_NS / 6; !is_back(&one) && ligi_now_ns() < end;)
        sched_yield();
    assert_true(is_back(&one));
    __atomic_store_n(&driver.flag, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ligi_net_close(net);
}

static void closing_ends_waiting(void **state)
{
    waiter one = {0}, two = {0};
    pthread_t threads[2];
    ligi_net *net;

    (void)state;
    assert_ok(ligi_net_open(&net, &plain));
    one.net = two.net = net;
    pthread_create(&threads[0], NULL, wait_for_flag, &one);
    pthread_create(&threads[1], NULL, wait_for_flag, &two);
    wait_until_asked(&one);
    wait_until_asked(&two);
    ligi_net_close(net);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_status(one.status, LIG_E_CLOSED);
    assert_status(two.status, LIG_E_CLOSED);
}

static void limits_of_a_send(void **state)
{
    static uint8_t byte, head[LIGI_HEAD_BYTES_MAX + 1];
    struct iovec many[LIGI_PIECES_MAX + 1];
    const ligi_net_options narrow = {.payload_bytes_max = 8};
    side one;
    ligi_link *link;
    int done;

    (void)state;
    assert_ok(side_open(&one, "inproc:", &narrow));
    assert_ok(side_connect(&one, one.address, "me", &link));
    ligi_send send = {.head = head, .head_bytes = sizeof head};
    assert_status(ligi_net_send(link, &send, &done), LIG_E_LIMIT);
    for (size_t i = 0; i <= LIGI_PIECES_MAX; i++)
        many[i] = (struct iovec){&byte, 0};
    send = (ligi_send){.iov = many, .count = LIGI_PIECES_MAX + 1};
    assert_status(ligi_net_send(link, &send, &done), LIG_E_LIMIT);
    many[0].iov_len = 5;
    many[1].iov_len = SIZE_MAX - 2; /* the sum is 2 for those who do not look */
    send.count = 2;
    assert_status(ligi_net_send(link, &send, &done), LIG_E_LIMIT);
    assert_says("limit of 8 bytes");
    side_close(&one);
}

static void memory_to_lend(void **state)
{
    void *memory, *more;
    side one;

    (void)state;
    assert_ok(side_open(&one, NULL, &plain));
    assert_ok(ligi_net_alloc(one.net, 1000, &memory));
    assert_ok(ligi_net_alloc(one.net, 0, &more));
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(((uint8_t *)memory)[i], 0);
    memset(memory, 1, 1000);
    ligi_net_free(one.net, memory);
    side_close(&one);
    ligi_net_free(NULL, more);
    ligi_net_free(NULL, NULL);
}

static void transports_are_described(void **state)
{
    lig_transport_option option;
    size_t count = 0, options = 0;

    (void)state;
    while (lig_transport_name(count) != NULL)
        count++;
    assert_true(count >= 3);
    assert_ok(lig_transport_check("tcp"));
    assert_status(lig_transport_check("pigeon"), LIG_E_NOTFOUND);
    assert_non_null(strstr(lig_transport_help("tcp"), "tcp://host:port"));
    assert_string_equal(lig_transport_help("pigeon"), "");
    while (lig_transport_option_get("tcp", options, &option))
        options++;
    assert_int_equal(options, 3);
    assert_string_equal(option.name, "receive_buffer");
    assert_string_equal(option.kind, "bytes");
    assert_int_equal(lig_transport_option_get("pigeon", 0, &option), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_may_close),         cmocka_unit_test(sent_may_close_and_send),
        cmocka_unit_test(services_have_one_owner), cmocka_unit_test(talks_to_itself),
        cmocka_unit_test(wake_reaches_all),        cmocka_unit_test(who_slept_is_let_in),
        cmocka_unit_test(who_waits_is_let_in),     cmocka_unit_test(closing_ends_waiting),
        cmocka_unit_test(limits_of_a_send),        cmocka_unit_test(memory_to_lend),
        cmocka_unit_test(last_words_are_heard),    cmocka_unit_test(transports_are_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
