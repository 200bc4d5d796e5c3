/* A peer in another process that is killed, stopped, or never says a word: the others hear of it,
 * or run into their deadline, and go on. Over every transport of builtin.def but inproc. */
#include "base/clock.h"
#include "base/test.h"
#include "freeze.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net_peer.h"
#include "net/progress.h"
#include "net/transport.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const ligi_transport_ops *transport;

static void serve_for_ever(int report, const char *where)
{
    const ligi_net_options plain = {0};
    size_t unreachable = 0;
    side self;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
    if (side_open(&self, where, &plain) != LIG_OK)
        _exit(3);
    self.echo = 1;
    if (write(report, self.address, sizeof self.address) != (ssize_t)sizeof self.address)
        _exit(4);
    for (;;)
        side_wait(&self, &unreachable, 1);
}

static void peer_start(peer *one)
{
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    one->pid = fork();
    if (one->pid == 0)
        serve_for_ever(pipes[1], transport->near);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], one->address, sizeof one->address), sizeof one->address);
    close(pipes[0]);
}

static void killed_while_idle(void **state)
{
    side client;
    ligi_link *link;
    peer one;

    (void)state;
    peer_start(&one);
    open_client(&client, &one, &link);
    peer_end(&one);
    assert_ok(side_wait(&client, &client.lost, 1));
    assert_status(client.lost_status, LIG_E_PEER);
    side_close(&client);
}

/* At any point of a conversation of messages of all sizes. */
static void killed_while_talking(void **state)
{
    (void)state;
    for (size_t at = 0; at < 12; at++) {
        size_t bytes = (size_t)1 << (2 * at + 2), queued = 0;
        side client;
        ligi_link *link;
        peer one;

        peer_start(&one);
        open_client(&client, &one, &link);
        struct iovec iov = {calloc(1, bytes), bytes};
        ligi_send send = {.head = "x", .head_bytes = 1, .iov = &iov, .count = 1, .token = &iov};
        for (size_t i = 0; i < 8; i++) {
            int done;
            assert_ok(ligi_net_send(link, &send, &done));
            queued += !done;
            if (i == at % 8)
                kill(one.pid, SIGKILL);
        }
        assert_ok(side_wait(&client, &client.lost, 1));
        assert_int_equal(client.sent_before_lost, queued); /* nothing stays borrowed */
        assert_true(client.lost_status == LIG_E_PEER);
        assert_status(
            ligi_net_wait(client.net, side_reached, &(side_wish){&client.lost, 2}, 1000000),
            LIG_E_TIMEOUT);
        free(iov.iov_base);
        side_close(&client);
        peer_end(&one);
    }
}

/* A stopped process keeps its connections: the deadline is the caller's, and nothing else hangs. */
static void stopped_and_continued(void **state)
{
    size_t bytes = (size_t)24 << 20;
    ligi_link *link, *second;
    side client;
    peer one;
    int done;

    (void)state;
    peer_start(&one);
    open_client(&client, &one, &link);
    freeze(one.pid);
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    assert_ok(ligi_net_send(link, &send, &done));
    side_wish wish = {&client.arrived, 1};
    assert_status(ligi_net_wait(client.net, side_reached, &wish, 20000000), LIG_E_TIMEOUT);
    /* A new connection is not answered, and runs out of time. */
    ligi_connect connect = {
        .address = one.address, .service = LIGI_SERVICE_TEST, .timeout_ns = 20000000};
    assert_ok(ligi_net_connect(client.net, &connect, &second));
    assert_ok(side_wait(&client, &client.lost, 1));
    assert_status(client.lost_status, LIG_E_TIMEOUT);
    kill(one.pid, SIGCONT);
    assert_ok(side_wait(&client, &client.arrived, 1));
    /* Closing while it is stopped again does not wait for it. */
    freeze(one.pid);
    assert_ok(ligi_net_send(link, &send, &done));
    size_t before = client.sent;
    ligi_link_close(link, NULL);
    assert_int_equal(client.sent - before, !done);
    free(iov.iov_base);
    side_close(&client);
    peer_end(&one);
}

static void the_client_dies(void **state)
{
    const ligi_net_options plain = {0};
    side server;

    (void)state;
    assert_ok(side_open(&server, transport->near, &plain));
    for (size_t i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) {
            side client;
            ligi_link *link;
            struct iovec iov = {calloc(1, 1 << 20), 1 << 20};
            ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
            int done;
            if (side_open(&client, NULL, &plain) != LIG_OK ||
                side_connect(&client, server.address, "mortal", &link) != LIG_OK ||
                side_wait(&client, &client.met, 1) != LIG_OK)
                _exit(1);
            for (size_t n = 0; n < i; n++)
                ligi_net_send(link, &send, &done);
            kill(getpid(), SIGKILL);
        }
        assert_ok(side_wait(&server, &server.lost, i + 1));
        assert_true(server.lost_status == LIG_E_PEER);
        waitpid(child, NULL, 0);
    }
    ligi_net_stats stats;
    ligi_net_stats_get(server.net, &stats);
    assert_int_equal(stats.link_count, 0);
    side_close(&server);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_while_idle),
    cmocka_unit_test(killed_while_talking),
    cmocka_unit_test(stopped_and_continued),
    cmocka_unit_test(the_client_dies),
};

int main(int argc, char **argv)
{
    int failed = 0;

    for (size_t i = 0; ligi_transports[i] != NULL; i++) {
        transport = ligi_transports[i];
        if (strcmp(transport->scheme, "inproc") == 0)
            continue;
        if (argc > 1 && strcmp(argv[1], transport->scheme) != 0)
            continue;
        failed += _cmocka_run_group_tests(transport->scheme, tests, sizeof tests / sizeof *tests,
                                          NULL, NULL);
    }
    return failed;
}
