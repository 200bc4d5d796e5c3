/* An endpoint with a secret, and everybody who should not get in: wrong key, no key, half a hello,
 * nothing at all. The one who should is served all the while. */
#include "base/clock.h"
#include "base/test.h"
#include "net/link/link_send.h"
#include "net/net_side.h"
#include "net/secure/openssl_library.h"
#include "net/secure/tls_channel.h"
#include "net/secure/tls_keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef"
#define HELLO_NS INT64_C(2000000000) /* where somebody says nothing; time for who does speak */

static ligi_net_options options_of(const char *secret, const char *group)
{
    return (ligi_net_options){.secret = secret,
                              .secret_bytes = secret ? strlen(secret) : 0,
                              .group = group,
                              .hello_ns = HELLO_NS};
}

static void open_server(side *server, const char *secret)
{
    ligi_net_options options = options_of(secret, "group");

    options.background = 1;
    assert_ok(side_open(server, "tcp://127.0.0.1:0", &options));
    server->echo = 1;
}

static void open_client(side *client, const char *secret, const char *group)
{
    ligi_net_options options = options_of(secret, group);

    options.hello_ns = SIDE_WAIT_NS;
    assert_ok(side_open(client, NULL, &options));
}

static void meet(side *server, side *client, ligi_link **link)
{
    assert_ok(side_connect(client, server->address, "a member", link));
    assert_ok(side_wait(client, &client->met, 1));
}

static void echo(side *client, ligi_link *link, size_t bytes)
{
    struct iovec iov = {malloc(bytes), bytes};
    ligi_send send = {.head = "head", .head_bytes = 4, .iov = &iov, .count = 1, .token = &iov};
    size_t before = client->arrived, sent = client->sent;
    int done;

    memset(iov.iov_base, (int)(bytes % 251), bytes);
    side_forget(client);
    client->keep = 1;
    assert_ok(ligi_net_send(link, &send, &done));
    assert_ok(side_wait(client, &client->arrived, before + 1));
    if (!done)
        assert_ok(side_wait(client, &client->sent, sent + 1));
    assert_int_equal(client->first->payload_bytes, bytes);
    assert_memory_equal(client->first->payload, iov.iov_base, bytes);
    free(iov.iov_base);
}

static size_t met_by(side *server)
{
    ligi_net_lock(server->net);
    size_t met = server->met;
    ligi_net_unlock(server->net);
    return met;
}

static void members_meet(void **state)
{
    side server, client;
    ligi_link *link;

    (void)state;
    open_server(&server, SECRET);
    open_client(&client, SECRET, "group");
    meet(&server, &client, &link);
    for (size_t bytes = 1; bytes < 9000000; bytes *= 13)
        echo(&client, link, bytes);
    side_close(&client);
    side_close(&server);
}

/* Keys and their counters are there twice now: a word of the child's would end the connection, and
 * its record would be encrypted as the parent's next one is. */
static void a_forked_child_says_nothing(void **state)
{
    side server, client;
    ligi_link *link;
    int result = 0;

    (void)state;
    open_server(&server, SECRET);
    open_client(&client, SECRET, "group");
    meet(&server, &client, &link);
    echo(&client, link, 1000);
    pid_t child = fork();
    if (child == 0) {
        ligi_net_close(client.net);
        ligi_net_close(server.net);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    for (size_t bytes = 1; bytes < 100000; bytes *= 13)
        echo(&client, link, bytes);
    assert_int_equal(client.lost, 0);
    side_close(&client);
    side_close(&server);
}

static void expect_refused(const char *server_secret, const char *secret, const char *group)
{
    side server, client;
    ligi_link *link;

    open_server(&server, server_secret);
    open_client(&client, secret, group);
    assert_ok(side_connect(&client, server.address, "mallory", &link));
    assert_ok(side_wait(&client, &client.lost, 1));
    assert_true(client.lost_status == LIG_E_DENIED || client.lost_status == LIG_E_PEER ||
                client.lost_status == LIG_E_CORRUPT);
    assert_int_equal(client.met, 0);
    assert_int_equal(met_by(&server), 0);
    side_close(&client);
    side_close(&server);
}

static void strangers_do_not(void **state)
{
    (void)state;
    expect_refused(SECRET, "another secret, of 32 bytes as well", "group");
    expect_refused(SECRET, SECRET, "another group");
    expect_refused(SECRET, NULL, NULL);
    expect_refused(NULL, SECRET, "group");
}

static void beyond_this_host_only_with_a_secret(void **state)
{
    const ligi_net_options plain = {0};
    ligi_net_options secret = options_of(SECRET, "group");
    side one;

    (void)state;
    assert_status(side_open(&one, "tcp://0.0.0.0:0", &plain), LIG_E_DENIED);
    assert_says("secret");
    side_close(&one);
    assert_ok(side_open(&one, "tcp://0.0.0.0:0", &secret));
    side_close(&one);
    secret.secret_bytes = 31;
    lig_status status = side_open(&one, "tcp://127.0.0.1:0", &secret);
    assert_status(status, LIG_E_INVALID);
    if (one.net != NULL)
        side_close(&one);
}

static int raw_connect(const side *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port = strrchr(server->address, ':') + 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Waits until the server has ended the connection. */
static void wait_end(int fd)
{
    char bytes[4096];
    int64_t end = ligi_now_ns() + SIDE_WAIT_NS;

    for (;;) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        assert_true(ligi_now_ns() < end);
        poll(&one, 1, 1000);
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

static void those_who_say_nonsense_are_dropped(void **state)
{
    static const char *const words[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and nothing more",
        "\x16\x03\x03\x00\x00",
        "\x15\x03\x03\x00\x02\x02\x28",
        "\x17\x03\x03\x00\x11qqqqqqqqqqqqqqqqq",
        "",
    };
    enum { COUNT = sizeof words / sizeof *words };
    side server, client;
    ligi_link *link;
    int fds[COUNT];

    (void)state;
    open_server(&server, SECRET);
    open_client(&client, SECRET, "group");
    meet(&server, &client, &link);
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = i == 2 ? 5 : strlen(words[i]);
        fds[i] = raw_connect(&server);
        (void)!send(fds[i], words[i], bytes, MSG_NOSIGNAL);
        echo(&client, link, 1000);
        int fd = raw_connect(&server); /* and hangs up at once */
        (void)!send(fd, words[i], bytes, MSG_NOSIGNAL);
        close(fd);
        echo(&client, link, 100000);
    }
    for (size_t i = 0; i < COUNT; i++) {
        wait_end(fds[i]);
        close(fds[i]);
    }
    assert_int_equal(met_by(&server), 1);
    side_close(&client);
    side_close(&server);
}

/* Knows the secret, and then says nothing: half open is not in. */
static void half_open_is_dropped(void **state)
{
    ligi_tls_keys *keys;
    ligi_tls_channel *secure;
    side server;
    int done = 0;

    (void)state;
    open_server(&server, SECRET);
    int fd = raw_connect(&server);
    assert_ok(ligi_tls_keys_open(SECRET, strlen(SECRET), "group", &keys));
    assert_ok(ligi_tls_channel_open(keys, fd, LIGI_SECURE_CONNECT, "the server", &secure));
    while (!done) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        assert_ok(ligi_tls_channel_handshake(secure, &done));
        if (!done)
            poll(&one, 1, 1000);
    }
    wait_end(fd);
    assert_int_equal(met_by(&server), 0);
    ligi_tls_channel_close(secure);
    ligi_tls_keys_close(keys);
    close(fd);
    side_close(&server);
}

/* As many as the system lets one process have, up to ten thousand. */
static size_t silent_count(void)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > 10600 ? 10000 : limit.rlim_cur > 1200 ? limit.rlim_cur - 800 : 300;
}

static void ten_thousand_silent_ones(void **state)
{
    size_t count = silent_count();
    int *fds = malloc(count * sizeof *fds);
    side server, client;
    ligi_link *link;
    ligi_net_stats stats;

    (void)state;
    open_server(&server, SECRET);
    open_client(&client, SECRET, "group");
    meet(&server, &client, &link);
    for (size_t i = 0; i < count; i++) {
        fds[i] = raw_connect(&server);
        if (i % 500 == 0)
            echo(&client, link, 70000);
    }
    ligi_net_stats_get(server.net, &stats);
    assert_true(stats.stranger_count <= 256);
    for (size_t i = 0; i < count; i++) {
        wait_end(fds[i]);
        close(fds[i]);
    }
    free(fds);
    echo(&client, link, 70000);
    ligi_net_stats_get(server.net, &stats);
    assert_int_equal(stats.stranger_count, 0);
    assert_int_equal(stats.link_count, 1);
    side_close(&client);
    side_close(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_meet),
        cmocka_unit_test(a_forked_child_says_nothing),
        cmocka_unit_test(strangers_do_not),
        cmocka_unit_test(beyond_this_host_only_with_a_secret),
        cmocka_unit_test(those_who_say_nonsense_are_dropped),
        cmocka_unit_test(half_open_is_dropped),
        cmocka_unit_test(ten_thousand_silent_ones),
    };
    const ligi_openssl *openssl;

    if (ligi_openssl_load(&openssl) != LIG_OK) {
        printf("skipped: %s\n", lig_error_text());
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
