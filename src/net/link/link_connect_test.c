/* Which of a card's addresses a connection takes. */
#include "base/clock.h"
#include "base/test.h"
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/net_side.h"
#include "net/progress.h"

#include <arpa/inet.h>
#include <unistd.h>

static const ligi_net_options plain = {0};

/* The server's card, with an address before its own; `far`: from another host. */
static size_t forge(side *server, const char *first, int far, uint8_t card[LIGI_CARD_BYTES_MAX])
{
    uint8_t own[LIGI_CARD_BYTES_MAX];
    size_t used = sizeof own;
    ligi_card made = {0};

    assert_ok(ligi_net_card(server->net, "10.0.0.7", own, &used));
    assert_ok(ligi_card_decode(own, used, &made));
    assert_string_equal(made.addresses[0], server->address);
    made.addresses[1] = made.addresses[0];
    made.addresses[0] = first;
    made.count = 2;
    made.boot_id[0] ^= (uint8_t)far;
    used = LIGI_CARD_BYTES_MAX;
    assert_ok(ligi_card_encode(&made, card, &used));
    return used;
}

/* The first address of the card leads nowhere. */
static void the_next_address_is_tried(void **state)
{
    uint8_t card[LIGI_CARD_BYTES_MAX];
    side gone, server, client;
    ligi_link *link;

    (void)state;
    assert_ok(side_open(&gone, "tcp://127.0.0.1:0", &plain));
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &plain));
    assert_ok(side_open(&client, NULL, &plain));
    ligi_connect connect = {.card = card,
                            .card_bytes = forge(&server, gone.address, 0, card),
                            .service = LIGI_SERVICE_TEST};
    side_close(&gone);
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    assert_int_equal(client.lost, 0);
    /* On another host a loopback address is nobody's. */
    connect.card_bytes = forge(&server, gone.address, 1, card);
    assert_status(ligi_net_connect(client.net, &connect, &link), LIG_E_NOTFOUND);
    side_close(&client);
    side_close(&server);
}

/* And one that takes the connection and says nothing has its turn and no more. With a secret the
 * hello waits for an answer. */
static void a_silent_address_gives_way(void **state)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    ligi_net_options shared = {.secret = secret, .secret_bytes = sizeof secret - 1};
    ligi_net_options hurried = shared;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    uint8_t card[LIGI_CARD_BYTES_MAX];
    char silent[64];
    side server, client;
    ligi_link *link;

    (void)state;
    hurried.turn_ns = 20000000;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(silent, sizeof silent, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    assert_ok(side_open(&server, "tcp://127.0.0.1:0", &shared));
    assert_ok(side_open(&client, NULL, &hurried));
    ligi_connect connect = {.card = card,
                            .card_bytes = forge(&server, silent, 0, card),
                            .service = LIGI_SERVICE_TEST,
                            .timeout_ns = SIDE_WAIT_NS};
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_true(side_both(&server, &client, &client.met, 1));
    assert_int_equal(client.lost, 0);
    side_close(&client);
    side_close(&server);
    close(fd);
}

/* A server that stands still for longer than a turn, and then finds what was sent meanwhile. */
static void who_stands_still_is_met_once(void **state)
{
    static const char *const places[] = {"shm:", "tcp://127.0.0.1:0"};
    ligi_net_options hurried = {.turn_ns = 1000000};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        uint8_t card[LIGI_CARD_BYTES_MAX];
        char second[LIGI_ADDRESS_BYTES_MAX];
        side server, client;
        ligi_link *link;
        assert_ok(side_open(&server, places[i], &plain));
        assert_ok(ligi_net_listen(server.net, "tcp://127.0.0.1:0", second));
        assert_ok(side_open(&client, NULL, &hurried));
        ligi_connect connect = {.card = card,
                                .card_bytes = sizeof card,
                                .service = LIGI_SERVICE_TEST,
                                .timeout_ns = SIDE_WAIT_NS};
        assert_ok(ligi_net_card(server.net, NULL, card, &connect.card_bytes));
        assert_ok(ligi_net_connect(client.net, &connect, &link));
        for (int64_t end = ligi_now_ns() + 20 * hurried.turn_ns; ligi_now_ns() < end;)
            assert_ok(ligi_net_poll(client.net));
        assert_true(side_both(&server, &client, &client.met, 1));
        ligi_link_close(link, NULL);
        assert_true(side_both(&server, &client, &server.lost, 1));
        assert_int_equal(server.met, 1);
        assert_status(server.lost_status, LIG_E_CLOSED);
        side_close(&client);
        side_close(&server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_address_is_tried),
                                       cmocka_unit_test(a_silent_address_gives_way),
                                       cmocka_unit_test(who_stands_still_is_met_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
