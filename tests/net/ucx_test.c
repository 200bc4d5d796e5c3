/* What is the ucx transport's own: proofs of a secret, the rule about networks, and peers in other
 * processes that die or stand still. Other processes are started anew and not forked off, since UCX
 * does not live on in a fork. */
#include "base/boot.h"
#include "base/clock.h"
#include "base/test.h"
#include "freeze.h"
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_receive.h"
#include "net/link/link_send.h"
#include "net/net_peer.h"
#include "net/progress.h"
#include "net/service.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef"

static const char *program; /* this one */

static ligi_net_options options_of(const char *secret, const char *group)
{
    return (ligi_net_options){
        .secret = secret, .secret_bytes = secret ? strlen(secret) : 0, .group = group};
}

static void open_both(side *server, side *client, ligi_net_options of_server,
                      ligi_net_options of_client)
{
    assert_ok(side_open(server, "ucx://127.0.0.1:0", &of_server));
    assert_ok(side_open(client, NULL, &of_client));
    server->echo = 1;
}

static void members_meet(void **state)
{
    ligi_net_options options = options_of(SECRET, "group");
    ligi_send send = {.head = "word", .head_bytes = 4};
    side server, client;
    ligi_link *link;

    (void)state;
    open_both(&server, &client, options, options);
    assert_ok(side_connect(&client, server.address, "a member", &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(side_both(&server, &client, &client.arrived, 1));
    side_close(&client);
    side_close(&server);
}

static void strangers_do_not(void **state)
{
    const struct {
        const char *server, *client, *group;
    } tries[] = {
        {SECRET, "another secret, of 32 bytes as well", "group"},
        {SECRET, SECRET, "another group"},
        {SECRET, NULL, NULL},
        {NULL, SECRET, "group"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        side server, client;
        ligi_link *link;
        open_both(&server, &client, options_of(tries[i].server, "group"),
                  options_of(tries[i].client, tries[i].group));
        assert_ok(side_connect(&client, server.address, "mallory", &link));
        assert_true(side_both(&server, &client, &client.lost, 1));
        assert_true(client.lost_status == LIG_E_DENIED || client.lost_status == LIG_E_PEER);
        assert_int_equal(client.met + server.met, 0);
        side_close(&client);
        side_close(&server);
    }
}

static void beyond_this_host_only_where_trusted(void **state)
{
    ligi_net_options plain = {0}, secret = options_of(SECRET, "group");
    side one;

    (void)state;
    assert_status(side_open(&one, "ucx://0.0.0.0:0?trusted=1", &plain), LIG_E_DENIED);
    assert_says("secret");
    side_close(&one);
    assert_status(side_open(&one, "ucx://0.0.0.0:0", &secret), LIG_E_DENIED);
    assert_says("does not encrypt");
    side_close(&one);
    assert_ok(side_open(&one, "ucx://0.0.0.0:0?trusted=1", &secret));
    assert_non_null(strstr(one.address, "?trusted=1"));
    side_close(&one);
    assert_status(side_open(&one, "ucx://localhost:0", &plain), LIG_E_INVALID);
    assert_says("numeric");
    side_close(&one);
    assert_status(side_open(&one, "ucx://127.0.0.1:0?speed=9", &plain), LIG_E_INVALID);
    side_close(&one);
}

/* --- one of several --- */

/* Listens by tcp and by ucx; the card has the ucx address given, or its own. */
static size_t two_doors(side *server, const char *ucx, uint8_t card[LIGI_CARD_BYTES_MAX])
{
    ligi_net_options secret = options_of(SECRET, "group");
    const char *addresses[2] = {ucx ? ucx : server->address, NULL};
    char tcp[LIGI_ADDRESS_BYTES_MAX];
    size_t bytes = LIGI_CARD_BYTES_MAX;
    ligi_card made = {.count = 2};

    assert_ok(side_open(server, "ucx://127.0.0.1:0", &secret));
    assert_ok(ligi_net_listen(server->net, "tcp://127.0.0.1:0", tcp));
    addresses[1] = tcp;
    assert_int_equal(ligi_boot_id(made.boot_id), 1);
    memcpy(made.addresses, addresses, sizeof addresses);
    assert_ok(ligi_card_encode(&made, card, &bytes));
    return bytes;
}

/* Which of the two a client takes. */
static void takes(const char *ucx, const ligi_net_options *options, const char *scheme)
{
    uint8_t card[LIGI_CARD_BYTES_MAX];
    side server, client;
    ligi_link *link;

    ligi_connect connect = {.card = card,
                            .card_bytes = two_doors(&server, ucx, card),
                            .service = LIGI_SERVICE_TEST,
                            .timeout_ns = SIDE_WAIT_NS};
    assert_ok(side_open(&client, NULL, options));
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    assert_string_equal(ligi_link_scheme(link), scheme);
    assert_int_equal(client.lost, 0);
    side_close(&client);
    side_close(&server);
}

static void taken_by_itself_where_trusted(void **state)
{
    ligi_net_options options = options_of(SECRET, "group");
    side probe;

    (void)state;
    takes(NULL, &options, "tcp");
    options.fabric = LIGI_FABRIC_ANY;
    takes(NULL, &options, "ucx");
    options.fabric = LIGI_FABRIC_DEVICE;
    lig_status status = side_open(&probe, "ucx://127.0.0.1:0", &options);
    side_close(&probe);
    if (status != LIG_OK || access("/sys/class/infiniband", F_OK) != 0) {
        assert_status(status, LIG_E_UNSUPPORTED);
        assert_says("no RDMA device");
    }
    takes(NULL, &options, status == LIG_OK ? "ucx" : "tcp");
}

/* Nobody is at the port, or somebody who never answers. */
static void gives_way(void **state)
{
    ligi_net_options options = options_of(SECRET, "group");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char address[64];

    (void)state;
    options.fabric = LIGI_FABRIC_ANY;
    options.turn_ns = 50000000;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, sizeof address, "ucx://127.0.0.1:%u", ntohs(at.sin_port));
    takes(address, &options, "tcp");
    assert_int_equal(listen(fd, 16), 0);
    takes(address, &options, "tcp");
    close(fd);
}

/* --- other processes --- */

static int serve_for_ever(int report)
{
    const ligi_net_options plain = {0};
    size_t unreachable = 0;
    side self;

    if (side_open(&self, "ucx://127.0.0.1:0", &plain) != LIG_OK)
        return 3;
    self.echo = 1;
    if (write(report, self.address, sizeof self.address) != (ssize_t)sizeof self.address)
        return 4;
    for (;;)
        side_wait(&self, &unreachable, 1);
}

static void peer_start(peer *one)
{
    char number[16];
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    snprintf(number, sizeof number, "%d", pipes[1]);
    one->pid = vfork();
    if (one->pid == 0) {
        execl(program, program, "serve", number, (char *)NULL);
        _exit(9);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], one->address, sizeof one->address), sizeof one->address);
    close(pipes[0]);
}

static void killed(void **state)
{
    size_t bytes = 4 << 20;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};

    (void)state;
    for (size_t words = 0; words < 6; words++) {
        side client;
        ligi_link *link;
        peer one;
        int done;
        peer_start(&one);
        open_client(&client, &one, &link);
        for (size_t i = 0; i < words; i++) {
            assert_ok(ligi_net_send(link, &send, &done));
            ligi_net_poll(client.net);
        }
        peer_end(&one);
        assert_ok(side_wait(&client, &client.lost, 1));
        assert_status(client.lost_status, LIG_E_PEER);
        side_close(&client);
    }
    free(iov.iov_base);
}

/* UCX never tells of a peer that stands still: waits end by their own time, and closing does not
 * wait for it. */
static void stopped(void **state)
{
    size_t bytes = 32 << 20, never = 0;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    side_wish wish = {&never, 1};
    side client;
    ligi_link *link;
    peer one;
    int done;

    (void)state;
    peer_start(&one);
    open_client(&client, &one, &link);
    freeze(one.pid);
    assert_ok(ligi_net_send(link, &send, &done));
    assert_status(ligi_net_wait(client.net, side_reached, &wish, 100000000), LIG_E_TIMEOUT);
    assert_int_equal(client.lost, 0);
    if (!done) {
        ligi_link_close(link, "you sleep");
        assert_int_equal(client.sent, 1); /* its memory is ours again */
    }
    free(iov.iov_base);
    side_close(&client);
    peer_end(&one);
}

/* Heads too long for a header are read where the core has them: it has them back when the link is
 * closed, and uses the memory again. */
static void stopped_before_long_heads(void **state)
{
    static uint8_t head[60000];
    ligi_send send = {.head = head, .head_bytes = sizeof head};
    ligi_link *link, *again;
    side client;
    peer one, two;

    (void)state;
    peer_start(&one);
    peer_start(&two);
    open_client(&client, &one, &link);
    client.keep = 1;
    assert_ok(side_connect(&client, two.address, "client", &again));
    assert_ok(side_wait(&client, &client.met, 2));
    freeze(one.pid);
    for (size_t i = 0; i < 200; i++)
        assert_ok(ligi_net_send(link, &send, NULL));
    assert_true(ligi_link_queued(link) > 0);
    ligi_link_close(link, "never mind");
    memset(head, 1, sizeof head);
    for (size_t i = 0; i < 200; i++)
        assert_ok(ligi_net_send(again, &send, NULL));
    assert_int_equal(kill(one.pid, SIGCONT), 0);
    assert_ok(side_wait(&client, &client.arrived, 200));
    for (side_message *message = client.first; message != NULL; message = message->next)
        assert_memory_equal(message->head, head, sizeof head);
    side_close(&client);
    peer_end(&one);
    peer_end(&two);
}

/* A peer that stands still while its message lands: memory is ours again once the landing has been
 * turned away or its link closed, even if the peer continues. */
typedef enum ucx_end { BY_CLOSE, BY_DIVERT, BY_REFUSAL, END_COUNT } ucx_end;

static void end_landing(ucx_end how, side *client, ligi_link *link)
{
    switch (how) {
    case BY_CLOSE: ligi_link_close(link, "no more"); break;
    case BY_DIVERT: assert_ok(ligi_net_divert(link, client->arriving)); break;
    default: ligi_net_unserve(client->net, LIGI_SERVICE_TEST); break;
    }
}

static void stopped_while_it_lands(void **state)
{
    size_t bytes = 128 << 20, never = 0;
    struct iovec iov = {calloc(1, bytes), bytes};
    ligi_send send = {.iov = &iov, .count = 1, .token = &iov};
    side_wish wish = {&never, 1};

    (void)state;
    for (ucx_end how = 0; how < END_COUNT; how++) {
        side client;
        ligi_link *link;
        peer one;
        int done;
        peer_start(&one);
        open_client(&client, &one, &link);
        assert_ok(ligi_net_send(link, &send, &done));
        assert_ok(side_wait(&client, &client.landing, 1)); /* the echo */
        freeze(one.pid);
        assert_int_equal(client.arrived, 0);
        uint8_t *memory = malloc(bytes);
        side_message *message = client.arriving;
        side_unlist(&client, link); /* from here on it is the test's */
        end_landing(how, &client, link);
        memset(message->payload, 0xEE, bytes);
        memset(memory, 0xEE, bytes);
        assert_int_equal(kill(one.pid, SIGCONT), 0);
        assert_status(ligi_net_wait(client.net, side_reached, &wish, 200000000), LIG_E_TIMEOUT);
        assert_int_equal(client.lost, how == BY_DIVERT);
        assert_memory_equal(message->payload, memory, bytes);
        side_close(&client);
        assert_memory_equal(message->payload, memory, bytes);
        side_message_free(message);
        free(memory);
        peer_end(&one);
    }
    free(iov.iov_base);
}

/* A goodbye that is not read in time is abandoned; a peer that continues can reconnect. */
static void stopped_at_the_goodbye(void **state)
{
    ligi_send send = {.head = "again", .head_bytes = 5};
    size_t never = 0;
    side_wish wish = {&never, 1};
    side client;
    ligi_link *link;
    peer one;

    (void)state;
    peer_start(&one);
    open_client(&client, &one, &link);
    freeze(one.pid);
    ligi_link_close(link, "good night");
    assert_status(ligi_net_wait(client.net, side_reached, &wish, 1500000000), LIG_E_TIMEOUT);
    assert_int_equal(kill(one.pid, SIGCONT), 0);
    assert_ok(side_connect(&client, one.address, "client", &link));
    assert_ok(side_wait(&client, &client.met, 2));
    assert_ok(ligi_net_send(link, &send, NULL));
    assert_ok(side_wait(&client, &client.arrived, 1));
    side_close(&client);
    peer_end(&one);
}

/* And one that continues after a pause has lost nothing. */
static void stopped_and_continued(void **state)
{
    ligi_send send = {.head = "still there?", .head_bytes = 12};
    size_t never = 0;
    side_wish wish = {&never, 1};
    side client;
    ligi_link *link;
    peer one;

    (void)state;
    peer_start(&one);
    open_client(&client, &one, &link);
    freeze(one.pid);
    for (size_t i = 0; i < 1000; i++) /* more than may be on their way */
        assert_ok(ligi_net_send(link, &send, NULL));
    assert_status(ligi_net_wait(client.net, side_reached, &wish, 50000000), LIG_E_TIMEOUT);
    assert_true(ligi_link_queued(link) > 0);
    assert_int_equal(kill(one.pid, SIGCONT), 0);
    assert_ok(side_wait(&client, &client.arrived, 1000));
    side_close(&client);
    peer_end(&one);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_meet),
        cmocka_unit_test(strangers_do_not),
        cmocka_unit_test(beyond_this_host_only_where_trusted),
        cmocka_unit_test(taken_by_itself_where_trusted),
        cmocka_unit_test(gives_way),
        cmocka_unit_test(killed),
        cmocka_unit_test(stopped),
        cmocka_unit_test(stopped_before_long_heads),
        cmocka_unit_test(stopped_while_it_lands),
        cmocka_unit_test(stopped_at_the_goodbye),
        cmocka_unit_test(stopped_and_continued),
    };
    const ligi_net_options plain = {0};
    side probe;

    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve_for_ever((int)strtol(argv[2], NULL, 10));
    lig_status status = side_open(&probe, "ucx://127.0.0.1:0", &plain);
    side_close(&probe);
    if (status != LIG_OK) {
        printf("skipped: %s\n", lig_error_text());
        return status == LIG_E_UNSUPPORTED ? 0 : 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
