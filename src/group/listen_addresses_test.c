#include "base/test.h"
#include "group/group.h"
#include "group/listen_addresses.h"
#include "net/frame/frame.h"
#include "net/transport.h"

#include <ligament/net.h>
#include <string.h>

#define SECRET "0123456789abcdef0123456789abcdef"

/* The schemes of the card, in the order of listening. */
static void listens(ligi_fabric fabric, const char *address, char schemes[64])
{
    ligi_net_options options = {
        .secret = SECRET, .secret_bytes = strlen(SECRET), .group = "g", .fabric = fabric};
    uint8_t bytes[LIGI_CARD_BYTES_MAX];
    size_t used = sizeof bytes;
    ligi_card card = {0};
    ligi_net *net;

    schemes[0] = '\0';
    assert_ok(ligi_net_open(&net, &options));
    assert_ok(ligi_group_listen(net, "auto", address, 1));
    assert_ok(ligi_net_card(net, "10.0.0.7", bytes, &used));
    assert_ok(ligi_card_decode(bytes, used, &card));
    for (size_t i = 0; i < card.count; i++)
        strncat(schemes, card.addresses[i], strcspn(card.addresses[i], ":") + 1);
    ligi_net_close(net);
}

/* 1 when a process that joins at that address listens on this host alone. */
static int near_of(const char *address)
{
    ligi_net_options options = {
        .secret = SECRET, .secret_bytes = strlen(SECRET), .group = "g", .fabric = LIGI_FABRIC_ANY};
    uint8_t bytes[LIGI_CARD_BYTES_MAX];
    size_t used = sizeof bytes;
    ligi_card card = {0};
    ligi_net *net;

    assert_ok(ligi_net_open(&net, &options));
    assert_ok(ligi_group_listen(net, "tcp", address, 1));
    assert_ok(ligi_net_card(net, "10.0.0.7", bytes, &used));
    assert_ok(ligi_card_decode(bytes, used, &card));
    assert_int_equal(card.count, 1);
    int near = strstr(card.addresses[0], "10.0.0.7") == NULL;
    ligi_net_close(net);
    return near;
}

static void who_trusts_the_fabric(void **state)
{
    (void)state;
    assert_int_equal(ligi_group_fabric("auto", 0, 0), LIGI_FABRIC_STRANGE);
    assert_int_equal(ligi_group_fabric("auto", 0, 4), LIGI_FABRIC_STRANGE);
    assert_int_equal(ligi_group_fabric("auto", 2, 0), LIGI_FABRIC_DEVICE);
    assert_int_equal(ligi_group_fabric("tcp", 2, 4), LIGI_FABRIC_ANY);
    if (lig_transport_check("ucx") == LIG_OK)
        assert_int_equal(ligi_group_fabric("ucx", 0, 0), LIGI_FABRIC_ANY);
}

static void what_auto_listens_on(void **state)
{
    const char *encrypted = "inproc:shm:tcp:", *all = "inproc:shm:tcp:ucx:";
    int has_ucx = lig_transport_check("ucx") == LIG_OK;
    char found[64];

    (void)state;
    listens(LIGI_FABRIC_STRANGE, "10.0.0.1:7000", found);
    assert_string_equal(found, encrypted);
    listens(LIGI_FABRIC_ANY, "10.0.0.1:7000", found);
    assert_string_equal(found, has_ucx ? all : encrypted);
    listens(LIGI_FABRIC_ANY, NULL, found);
    assert_string_equal(found, has_ucx ? all : encrypted);
    /* All are on this host. */
    listens(LIGI_FABRIC_ANY, "127.0.0.1:7000", found);
    assert_string_equal(found, encrypted);
}

static void which_hosts_are_this_one(void **state)
{
    static const char *const here[] = {"127.0.0.1:7000", "tcp://127.9.8.7:7000", "localhost:7000",
                                       "tcp://localhost", "tcp://[::1]:7000?send_buffer=1MiB"};
    static const char *const elsewhere[] = {"localhost-17.cluster:7000", "tcp://127.example.org:70",
                                            "tcp://127.0.0.1.example.org:70", "[::11]:7000", ""};

    (void)state;
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        assert_int_equal(near_of(here[i]), 1);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_int_equal(near_of(elsewhere[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_trusts_the_fabric),
                                       cmocka_unit_test(what_auto_listens_on),
                                       cmocka_unit_test(which_hosts_are_this_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
