/* The shm transport and those who should not come in, mean harm, or are no more. */
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/service.h"
#include "net/shm/wire.h"
#include "net/shm_pair.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const uint64_t mib = UINT64_C(1) << 20;

/* --- who may come in --- */

static void test_another_user_is_refused(void **state)
{
    pair both;
    char uri[64];
    (void)state;

    snprintf(uri, sizeof uri, "shm:?uid=%u", geteuid() + 1);
    pair_begin(&both, uri);
    pair_until(&both, client_lost, 1);
    assert_int_equal(both.client.lost_status, LIG_E_PEER);
    assert_int_equal(both.server.met_count, 0);
    pair_close(&both);

    end_open(&both.server);
    end_open(&both.client);
    assert_ok(ligi_net_listen(both.server.net, "shm:", both.address));
    snprintf(both.address + strlen(both.address), 32, "?uid=%u", geteuid() + 1);
    ligi_connect connect = {.address = both.address, .service = LIGI_SERVICE_TEST};
    assert_status(ligi_net_connect(both.client.net, &connect, &both.client.link), LIG_E_DENIED);
    assert_says("only user");
    both.client.link = NULL;
    pair_close(&both);
}

static void test_file_of_a_socket(void **state)
{
    char folder[] = "/tmp/shm_testXXXXXX", path[64], uri[80];
    char address[LIGI_ADDRESS_BYTES_MAX];
    struct stat file;
    end first, second;
    pair both;
    (void)state;

    assert_non_null(mkdtemp(folder));

    snprintf(path, sizeof path, "%s/door", folder);

    snprintf(uri, sizeof uri, "shm:%s", path);
    end_open(&first);
    end_open(&second);
    assert_ok(ligi_net_listen(first.net, uri, address));
    assert_string_equal(address, uri);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_status(ligi_net_listen(second.net, uri, address), LIG_E_EXISTS);
    end_close(&first);
    assert_int_equal(stat(path, &file), -1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        end_open(&first);
        _exit(ligi_net_listen(first.net, uri, address) == LIG_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stat(path, &file), 0);
    end_close(&second);
    pair_open(&both, uri);
    pair_close(&both);
    assert_int_equal(rmdir(folder), 0);
}

static void test_names_are_checked(void **state)
{
    static const char *const wrong[] = {
        "shm:a%20b", "shm:?uid=-2", "shm:?backlog=0", "shm:?colour=red",
        "shm:0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789"};
    char address[LIGI_ADDRESS_BYTES_MAX];
    end one;
    (void)state;

    end_open(&one);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(ligi_net_listen(one.net, wrong[i], address), LIG_E_INVALID);
    ligi_connect connect = {.address = "shm:nobody-there-at-all", .service = LIGI_SERVICE_TEST};
    assert_status(ligi_net_connect(one.net, &connect, &one.link), LIG_E_PEER);
    assert_says("is listening");
    one.link = NULL;
    end_close(&one);
}

/* --- peers that mean harm --- */

static void assert_still_serves(end *server, const char *address)
{
    end client;
    end_open(&client);
    end_connect(&client, address);
    for (int i = 0; i < 1000 && !ligi_link_up(client.link); i++) {
        assert_ok(ligi_net_poll(client.net));
        assert_ok(ligi_net_poll(server->net));
    }
    assert_true(ligi_link_up(client.link));
    end_close(&client);
}

/* 1 when the server has hung up on the stranger. */
static int hung_up(end *server, stranger *who)
{
    char byte;
    for (int i = 0; i < 100; i++) {
        ssize_t got = recv(who->fd, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return 1;
        assert_ok(ligi_net_poll(server->net));
    }
    return 0;
}

enum { all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, UNSEALED = 4 };
static const int too_few_seals[UNSEALED] = {0, all_seals & ~F_SEAL_SHRINK, all_seals & ~F_SEAL_GROW,
                                            all_seals & ~F_SEAL_SEAL};

static void test_memory_without_seals(void **state)
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    end server;
    (void)state;

    end_open(&server);
    assert_ok(ligi_net_listen(server.net, "shm:", address));
    for (size_t i = 0; i <= UNSEALED; i++) {
        stranger who;
        stranger_connect(&who, address);
        stranger_show(&who, i < UNSEALED ? too_few_seals[i] : all_seals, 0);
        assert_int_equal(hung_up(&server, &who), i < UNSEALED);
        stranger_close(&who);
    }
    for (int wrong = 1; wrong <= 5; wrong++) {
        stranger who;
        stranger_connect(&who, address);
        stranger_show(&who, all_seals, wrong);
        assert_int_equal(hung_up(&server, &who), 1);
        stranger_close(&who);
    }
    assert_still_serves(&server, address);
    end_close(&server);
}

/* Reading memory that its owner has shrunk since would kill the reader with SIGBUS. */
static void test_lent_memory_without_seals(void **state)
{
    (void)state;
    for (size_t i = 0; i < UNSEALED; i++) {
        pair both;
        ligi_segment_place lent = {
            .fd = stranger_memory(4096, too_few_seals[i]), .segment = 77, .segment_bytes = 4096};
        pair_open(&both, "shm:");
        assert_int_equal(ligi_wire_show(both.client.link->wire, &lent), 1);
        pair_until(&both, server_lost, 1);
        assert_int_equal(both.server.lost_status, LIG_E_DENIED);
        close(lent.fd);
        pair_close(&both);
    }
}

static void test_hostile_rings(void **state)
{
    char address[LIGI_ADDRESS_BYTES_MAX];
    unsigned seed = 8, refused = 0;
    end server;
    (void)state;

    end_open(&server);
    server.limit = 1 << 20;
    assert_ok(ligi_net_listen(server.net, "shm:", address));
    for (int round = 0; round < 150; round++) {
        stranger who;
        uint8_t noise[256];
        stranger_connect(&who, address);
        stranger_show(&who, all_seals, 0);
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)rand_r(&seed);
        stranger_speak(&who, noise, sizeof noise, round % 3);
        refused += (unsigned)hung_up(&server, &who);
        stranger_close(&who);
    }
    assert_true(refused > 100);
    assert_still_serves(&server, address);
    end_close(&server);
}

/* --- the end of a peer --- */

static void test_killed_in_the_middle(void **state)
{
    pair both;
    int ready[2], status;
    (void)state;

    end_open(&both.server);
    assert_ok(ligi_net_listen(both.server.net, "shm:", both.address));
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        end client;
        end_open(&client);
        end_connect(&client, both.address);
        uint8_t *data = calloc(1, 256 * mib);
        struct iovec piece = {data, 256 * mib};
        ligi_send message = {.iov = &piece, .count = 1};
        int done;
        (void)ligi_net_send(client.link, &message, &done);
        for (;;)
            (void)ligi_net_poll(client.net);
    }
    for (int i = 0; both.server.landing_bytes == 0 && i < 10000000; i++)
        assert_ok(ligi_net_poll(both.server.net));
    assert_int_equal(both.server.landing_bytes, 256 * mib);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_ok(ligi_net_wait(both.server.net, end_is_lost, &both.server, INT64_C(10000000000)));
    assert_int_equal(both.server.lost_status, LIG_E_PEER);
    assert_int_equal(both.server.arrived_count, 0);
    close(ready[0]);
    close(ready[1]);
    end_close(&both.server);
}

static void test_frozen_peer_is_a_timeout(void **state)
{
    pair both;
    int status;
    (void)state;

    end_open(&both.server);
    assert_ok(ligi_net_listen(both.server.net, "shm:", both.address));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        end client;
        end_open(&client);
        end_connect(&client, both.address);
        (void)ligi_net_wait(client.net, end_is_lost, &client, LIG_FOREVER);
        _exit(client.lost_status == LIG_E_CLOSED ? 0 : 1);
    }
    assert_ok(ligi_net_wait(both.server.net, end_is_met, &both.server, INT64_C(10000000000)));
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    uint8_t *data = calloc(1, 8 * mib);
    assert_non_null(data);
    send_bytes(&both.server, data, 8 * mib, 0);
    assert_status(ligi_net_wait(both.server.net, end_is_lost, &both.server, 50000000),
                  LIG_E_TIMEOUT);
    assert_int_equal(both.server.sent_count, 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_ok(ligi_net_wait(both.server.net, end_has_sent, &both.server, INT64_C(10000000000)));
    ligi_link_close(both.server.link, "enough");
    both.server.link = NULL;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(data);
    end_close(&both.server);
}

static void test_forked_child_leaves_the_link_alone(void **state)
{
    pair both;
    int status;
    (void)state;

    pair_open(&both, "shm:");
    uint8_t *tensor = alloc_of(&both.client, mib);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ligi_send nothing = {.head = "x", .head_bytes = 1};
        int refused = ligi_net_send(both.client.link, &nothing, NULL) == LIG_E_CLOSED;
        tensor[0] = 5;
        ligi_net_free(both.client.net, tensor);
        ligi_net_close(both.client.net);
        ligi_net_close(both.server.net);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(tensor[0], 5);
    send_bytes(&both.client, tensor, mib, 0);
    pair_until(&both, server_arrivals, 1);
    ligi_net_free(both.client.net, tensor);
    pair_close(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_user_is_refused),
        cmocka_unit_test(test_file_of_a_socket),
        cmocka_unit_test(test_names_are_checked),
        cmocka_unit_test(test_memory_without_seals),
        cmocka_unit_test(test_lent_memory_without_seals),
        cmocka_unit_test(test_hostile_rings),
        cmocka_unit_test(test_killed_in_the_middle),
        cmocka_unit_test(test_frozen_peer_is_a_timeout),
        cmocka_unit_test(test_forked_child_leaves_the_link_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
