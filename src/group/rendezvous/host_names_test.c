#include "base/test.h"
#include "group/group_state.h"
#include "group/rendezvous/host_names.h"

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *address, *host;
        int name;
    } rows[] = {
        {"tcp://10.0.0.1:7000", "10.0.0.1", 0},
        {"tcp://node7:1?backlog=3", "node7", 1},
        {"tcp://[::1]:7000", "[::1]", 0},
        {"tcp://0.0.0.0:1", "", 0},
        {"tcp://[::]:1", "", 0},
        {"tcp://localhost:1", "localhost", 0},
        {"inproc:x", "", 0},
        {"shm:", "", 0},
        {"tcp://10.0.0.1.example.org:1", "10.0.0.1.example.org", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[64];
        ligi_group_host_of(rows[i].address, host, sizeof host);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(ligi_group_is_name(host), rows[i].name);
    }
    char small[4];
    ligi_group_host_of("tcp://longer:1", small, sizeof small);
    assert_string_equal(small, "");
}

static void test_ports(void **state)
{
    (void)state;
    const char *const rows[][2] = {
        {"tcp://10.0.0.1:7000", "7000"},
        {"tcp://[::1]:70?backlog=3", "70"},
        {"tcp://h", ""},
        {"tcp://h?x=1:2", ""},
        {"inproc:name", ""},
        {"tcp://h:", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char port[16];
        ligi_group_port_of(rows[i][0], port, sizeof port);
        assert_string_equal(port, rows[i][1]);
    }
}

static void test_loopback(void **state)
{
    (void)state;
    assert_true(ligi_group_is_loopback("127.0.1.1"));
    assert_true(ligi_group_is_loopback("::1"));
    assert_false(ligi_group_is_loopback("10.0.0.1"));
    assert_false(ligi_group_is_loopback(""));
}

static void test_only_names_are_widened(void **state)
{
    (void)state;
    char wide[LIGI_ADDRESS_BYTES_MAX];
    assert_int_equal(ligi_group_widen("tcp://127.0.0.1:7000", wide), 0);
    assert_int_equal(ligi_group_widen("tcp://localhost:7000", wide), 0);
    assert_int_equal(ligi_group_widen("tcp://no.such.host.invalid:7000", wide), 0);
    assert_int_equal(ligi_group_widen("inproc:x", wide), 0);
}

static void test_own_number_is_a_number(void **state)
{
    (void)state;
    char host[LIGI_ADDRESS_BYTES_MAX];
    ligi_group_own_number("", host, sizeof host);
    assert_int_equal(ligi_group_is_name(host), 0);
    assert_false(ligi_group_is_loopback(host));
    ligi_group_own_number("localhost", host, sizeof host);
    assert_false(ligi_group_is_loopback(host));
    ligi_group_own_number("192.0.2.7", host, sizeof host);
    assert_string_equal(host, "192.0.2.7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_only_names_are_widened),
        cmocka_unit_test(test_own_number_is_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
