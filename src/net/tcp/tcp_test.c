/* What tcp alone has: addresses that reach beyond the host, IPv6, strangers who say nothing or
 * nonsense, descriptors that run out. */
#include "base/clock.h"
#include "base/test.h"
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/net_side.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/tcp/tcp_address.h"
#include "net/tcp/tcp_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

static int raw_connect(const char *text)
{
    ligi_tcp_address address;
    ligi_uri uri;

    assert_ok(ligi_uri_parse(&uri, text));
    assert_ok(ligi_tcp_address_parse(&uri, 1, &address));
    ligi_uri_fini(&uri);
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address.storage, address.bytes), 0);
    return fd;
}

/* 1 when the other end has ended the connection; drives the endpoint meanwhile. */
static int is_dropped(side *server, int fd)
{
    int64_t deadline = ligi_now_ns() + SIDE_WAIT_NS;
    char byte[512];

    while (ligi_now_ns() < deadline) {
        ssize_t got = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return 1;
        ligi_net_poll(server->net);
    }
    return 0;
}

static void stays_on_this_host(void **state)
{
    const ligi_net_options plain = {0};
    char address[LIGI_ADDRESS_BYTES_MAX];
    ligi_link *link;
    side one;

    (void)state;
    assert_ok(side_open(&one, NULL, &plain));
    assert_status(ligi_net_listen(one.net, "tcp://0.0.0.0:0", address), LIG_E_DENIED);
    assert_says("secret");
    assert_status(ligi_net_listen(one.net, "tcp://[::]:0", address), LIG_E_DENIED);
    assert_status(side_connect(&one, "tcp://192.0.2.1:7000", "x", &link), LIG_E_DENIED);
    assert_says("192.0.2.1");
    assert_status(ligi_net_listen(one.net, "tcp://127.0.0.1:0?colour=red", address), LIG_E_INVALID);
    assert_says("colour");
    assert_status(ligi_net_listen(one.net, "tcp://127.0.0.1:0?backlog=0", address), LIG_E_INVALID);
    assert_status(ligi_net_listen(one.net, "pigeon://127.0.0.1:0", address), LIG_E_NOTFOUND);
    assert_says("tcp");
    assert_ok(ligi_net_listen(one.net, "tcp://localhost:0?send_buffer=64KiB", address));
    side_close(&one);
}

static void takes_a_port_once(void **state)
{
    const ligi_net_options plain = {0};
    char again[LIGI_ADDRESS_BYTES_MAX];
    side one, two;

    (void)state;
    assert_ok(side_open(&one, "tcp://127.0.0.1:0", &plain));
    assert_ok(side_open(&two, NULL, &plain));
    assert_status(ligi_net_listen(two.net, one.address, again), LIG_E_EXISTS);
    assert_says(one.address);
    side_close(&one);
    side_close(&two);
}

static void speaks_ipv6(void **state)
{
    const ligi_net_options plain = {0};
    char host[LIGI_ADDRESS_BYTES_MAX];
    ligi_link *link;
    side one, two;

    (void)state;
    if (side_open(&one, "tcp://[::1]:0", &plain) != LIG_OK) {
        side_close(&one);
        skip(); /* a host without IPv6 */
    }
    assert_ok(side_open(&two, NULL, &plain));
    assert_ok(side_connect(&two, one.address, "six", &link));
    assert_true(side_both(&one, &two, &two.met, 1));
    assert_ok(ligi_link_local_host(link, host));
    assert_string_equal(host, "::1");
    side_close(&two);
    side_close(&one);
}

static void silence_ends(void **state)
{
    const ligi_net_options hasty = {.hello_ns = 1};
    ligi_net_stats stats;
    side server;

    (void)state;
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &hasty));
    int silent = raw_connect(server.address), half = raw_connect(server.address);
    assert_int_equal(send(half, "LGN\1", 4, 0), 4);
    assert_true(is_dropped(&server, silent));
    assert_true(is_dropped(&server, half));
    ligi_net_stats_get(server.net, &stats);
    assert_int_equal(stats.link_count, 0);
    assert_int_equal(stats.stranger_count, 0);
    assert_int_equal(server.met, 0);
    assert_int_equal(server.lost, 0);
    close(silent);
    close(half);
    side_close(&server);
}

typedef struct nonsense {
    const char *what;
    const uint8_t *bytes;
    size_t count;
} nonsense;

static void nonsense_ends_at_once(void **state)
{
    static const uint8_t http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const uint8_t data_first[] = {'L', 'G', 'N', 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t huge_hello[] = {'L', 'G', 'N', 1, 255, 255, 255, 255,
                                         0,   0,   0,   0, 0,   0,   0,   0};
    static const uint8_t loaded_hello[] = {'L', 'G', 'N', 1, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t kind_nine[] = {'L', 'G', 'N', 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t empty_hello[] = {'L', 'G', 'N', 1, 4, 0, 0, 0, 0, 0,
                                          0,   0,   0,   0, 0, 0, 1, 0, 0, 0};
    const nonsense cases[] = {
        {"http", http, sizeof http},
        {"data before hello", data_first, sizeof data_first},
        {"a hello of 4 GiB", huge_hello, sizeof huge_hello},
        {"a hello with a payload", loaded_hello, sizeof loaded_hello},
        {"no such kind", kind_nine, sizeof kind_nine},
        {"a hello of four bytes", empty_hello, sizeof empty_hello},
    };
    const ligi_net_options plain = {0};
    ligi_net_stats stats;
    side server;

    (void)state;
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &plain));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = raw_connect(server.address);
        assert_int_equal(send(fd, cases[i].bytes, cases[i].count, 0), cases[i].count);
        assert_true(is_dropped(&server, fd));
        close(fd);
    }
    ligi_net_stats_get(server.net, &stats);
    assert_int_equal(stats.link_count, 0);
    assert_int_equal(server.met, 0);
    side_close(&server);
}

static size_t say_hello(int fd, uint32_t version)
{
    uint8_t prefix[LIGI_PREFIX_BYTES];
    ligi_hello hello = {.data = "raw", .bytes = 3};
    ligi_writer writer = {0};

    ligi_hello_encode(&hello, LIGI_SERVICE_TEST, &writer);
    writer.data[0] = (uint8_t)version;
    ligi_frame_prefix first = {.kind = LIGI_KIND_HELLO, .head_bytes = (uint32_t)writer.bytes};
    ligi_frame_prefix_encode(&first, prefix);
    assert_int_equal(send(fd, prefix, sizeof prefix, 0), sizeof prefix);
    assert_int_equal(send(fd, writer.data, writer.bytes, 0), writer.bytes);
    ligi_writer_fini(&writer);
    return writer.bytes;
}

static void another_version_is_told(void **state)
{
    const ligi_net_options plain = {0};
    uint8_t answer[1024];
    side server;

    (void)state;
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &plain));
    int fd = raw_connect(server.address);
    say_hello(fd, LIGI_NET_VERSION + 1);
    ssize_t got = 0;
    for (long i = 0; i < 1000000 && got <= 0; i++) {
        ligi_net_poll(server.net);
        got = recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
    }
    assert_true(got > LIGI_PREFIX_BYTES + 4);
    answer[got] = '\0';
    assert_int_equal(answer[3], LIGI_KIND_BYE);
    assert_non_null(strstr((char *)answer + LIGI_PREFIX_BYTES + 4, "the peer has version 2"));
    close(fd);
    side_close(&server);
}

/* A peer that is known, and then announces what nobody can take. */
static void limits_hold_for_friends(void **state)
{
    const ligi_net_options narrow = {.payload_bytes_max = 1000};
    side server;

    (void)state;
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &narrow));
    const ligi_frame_prefix cases[] = {{LIGI_KIND_DATA, LIGI_HEAD_BYTES_MAX + 1, 0},
                                       {LIGI_KIND_DATA, 0, 1001},
                                       {LIGI_KIND_DATA, 0, UINT64_MAX},
                                       {LIGI_KIND_HELLO, 48, 0},
                                       {LIGI_KIND_BYE, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t prefix[LIGI_PREFIX_BYTES];
        int fd = raw_connect(server.address);
        say_hello(fd, LIGI_NET_VERSION);
        ligi_frame_prefix_encode(&cases[i], prefix);
        assert_int_equal(send(fd, prefix, sizeof prefix, 0), sizeof prefix);
        assert_true(is_dropped(&server, fd));
        close(fd);
    }
    assert_int_equal(server.met, sizeof cases / sizeof *cases);
    assert_ok(side_wait(&server, &server.lost, server.met));
    assert_int_equal(server.arrived, 0);
    side_close(&server);
}

/* Sends until TLS holds bytes for a full socket, which it does for some sizes of payload; the count
 * of messages that were reported as sent. */
static size_t fill(side *from, side *to, ligi_link *link, const struct iovec *payload)
{
    const ligi_tcp_wire *wire = link->wire;
    size_t count = 0;

    while (count < 100 && !ligi_stream_unsent(&wire->stream)) {
        struct iovec piece = *payload;
        ligi_send send = {
            .head = "h", .head_bytes = 1, .iov = &piece, .count = 1, .token = payload->iov_base};
        int done = 0;
        assert_ok(ligi_net_send(link, &send, &done));
        if (!done && ligi_net_cancel(link, payload->iov_base) == LIG_OK)
            break;
        if (!done) /* a part of it has gone */
            assert_true(side_both(to, from, &from->sent, from->sent + 1));
        count++;
    }
    return count;
}

/* What TLS still holds when a link is closed was reported as sent: it arrives. */
static void held_bytes_outlive_the_link(void **state)
{
    static uint8_t payload[40000];
    ligi_net_options options = {
        .secret = "0123456789abcdef0123456789abcdef", .secret_bytes = 32, .group = "g"};

    (void)state;
    for (size_t bytes = 9000; bytes < sizeof payload; bytes += 5422) {
        const struct iovec piece = {payload, bytes};
        char address[LIGI_ADDRESS_BYTES_MAX + 32];
        ligi_link *link;
        side one, two;
        assert_ok(side_open(&one, "tcp://127.0.0.1:0?receive_buffer=64KiB", &options));
        assert_ok(side_open(&two, NULL, &options));
        snprintf(address, sizeof address, "%s?send_buffer=64KiB", one.address);
        assert_ok(side_connect(&two, address, "x", &link));
        assert_true(side_both(&one, &two, &two.met, 1));
        assert_true(side_both(&one, &two, &one.met, 1));
        size_t sent = fill(&two, &one, link, &piece);
        ligi_link_close(link, "work done");
        assert_true(side_both(&one, &two, &one.lost, 1));
        assert_int_equal(one.arrived, sent);
        side_close(&two);
        side_close(&one);
    }
}

static void lift_descriptor_limit(rlim_t wanted)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* As many as the system lets us make, up to 10,000, that never say a word. */
static void ten_thousand_strangers(void **state)
{
    enum { CROWD = 10000 };
    static int crowd[CROWD];
    const ligi_net_options plain = {0};
    ligi_net_stats stats;
    ligi_link *link;
    side server, client;
    struct rlimit before;
    size_t count = 0;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    lift_descriptor_limit(CROWD + 1000);
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &plain));
    assert_ok(side_open(&client, NULL, &plain));
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    size_t most = now.rlim_cur > CROWD + 600 ? CROWD : (size_t)now.rlim_cur - 400;
    for (; count < most; count++) {
        crowd[count] = raw_connect(server.address);
        if (count % 32 == 0)
            ligi_net_poll(server.net);
        /* In the midst of it somebody comes who means it. */
        if (count == most / 2) {
            assert_ok(side_connect(&client, server.address, "honest", &link));
            assert_true(side_both(&server, &client, &client.met, 1));
        }
    }
    ligi_net_stats_get(server.net, &stats);
    assert_true(stats.stranger_count <= 256);
    server.echo = 1;
    ligi_send send = {.head = "still here?", .head_bytes = 11};
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(side_both(&server, &client, &client.arrived, 1));
    assert_int_equal(client.lost, 0);
    for (size_t i = 0; i < count; i++)
        close(crowd[i]);
    side_close(&client);
    side_close(&server);
    setrlimit(RLIMIT_NOFILE, &before);
}

/* No descriptors are left: who knocks is turned away, and whoever is in stays. */
static void descriptors_run_out(void **state)
{
    const ligi_net_options plain = {0};
    int taken[256], count = 0;
    struct rlimit before;
    ligi_link *link;
    side server, client;

    (void)state;
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &plain));
    assert_ok(side_open(&client, NULL, &plain));
    assert_ok(side_connect(&client, server.address, "early", &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    int fd = raw_connect(server.address);
    getrlimit(RLIMIT_NOFILE, &before);
    lift_descriptor_limit((rlim_t)fd + 16);
    while (count < 256 && (taken[count] = dup(fd)) >= 0)
        count++;
    assert_true(count < 256);
    assert_true(is_dropped(&server, fd));
    server.echo = 1;
    ligi_send send = {.head = "still here?", .head_bytes = 11};
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(side_both(&server, &client, &client.arrived, 1));
    while (count > 0)
        close(taken[--count]);
    close(fd);
    setrlimit(RLIMIT_NOFILE, &before);
    side_close(&client);
    side_close(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_on_this_host),
        cmocka_unit_test(takes_a_port_once),
        cmocka_unit_test(speaks_ipv6),
        cmocka_unit_test(silence_ends),
        cmocka_unit_test(nonsense_ends_at_once),
        cmocka_unit_test(another_version_is_told),
        cmocka_unit_test(limits_hold_for_friends),
        cmocka_unit_test(held_bytes_outlive_the_link),
        cmocka_unit_test(ten_thousand_strangers),
        cmocka_unit_test(descriptors_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
