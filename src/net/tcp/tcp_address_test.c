#include "base/test.h"
#include "net/tcp/tcp_address.h"

static lig_status parse(const char *text, ligi_tcp_address *address)
{
    ligi_uri uri;

    LIG_TRY(ligi_uri_parse(&uri, text));
    lig_status status = ligi_tcp_address_parse(&uri, 1, address);
    ligi_uri_fini(&uri);
    return status;
}

static void good_ones(void **state)
{
    static const struct {
        const char *text, *printed, *host;
        int loopback;
    } cases[] = {
        {"tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "127.0.0.1", 1},
        {"tcp://127.8.9.10:65535", "tcp://127.8.9.10:65535", "127.8.9.10", 1},
        {"tcp://:7000", "tcp://127.0.0.1:7000", "127.0.0.1", 1},
        {"tcp:127.0.0.1:7000", "tcp://127.0.0.1:7000", "127.0.0.1", 1},
        {"tcp://[::1]:7000", "tcp://[::1]:7000", "::1", 1},
        {"tcp://[::ffff:127.0.0.1]:1", "tcp://[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", 1},
        {"tcp://10.1.2.3:7000", "tcp://10.1.2.3:7000", "10.1.2.3", 0},
        {"tcp://0.0.0.0:7000", "tcp://0.0.0.0:7000", "0.0.0.0", 0},
        {"tcp://[::]:7000", "tcp://[::]:7000", "::", 0},
        {"tcp://[::ffff:10.0.0.1]:1", "tcp://[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 0},
        {"tcp://[2001:db8::1]:443", "tcp://[2001:db8::1]:443", "2001:db8::1", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[LIGI_ADDRESS_BYTES_MAX];
        ligi_tcp_address address;

        assert_ok(parse(cases[i].text, &address));
        ligi_tcp_address_print(&address, text);
        assert_string_equal(text, cases[i].printed);
        ligi_tcp_address_host(&address, text);
        assert_string_equal(text, cases[i].host);
        assert_int_equal(ligi_tcp_address_loopback(&address), cases[i].loopback);
    }
}

static void bad_ones(void **state)
{
    static const struct {
        const char *text;
        lig_status status;
        const char *says;
    } cases[] = {
        {"tcp://127.0.0.1", LIG_E_INVALID, "has no port"},
        {"tcp://127.0.0.1:", LIG_E_INVALID, "has no port"},
        {"tcp://[::1]", LIG_E_INVALID, "has no port"},
        {"tcp://[::1:7000", LIG_E_INVALID, "without ']'"},
        {"tcp://::1:7000", LIG_E_INVALID, "in brackets"},
        {"tcp://127.0.0.1:65536", LIG_E_INVALID, "65535"},
        {"tcp://127.0.0.1:http", LIG_E_INVALID, "invalid port"},
        {"tcp://127.0.0.1:-1", LIG_E_INVALID, "invalid port"},
        {"tcp://no.such.host:1", LIG_E_NOTFOUND,
         "no.such.host"}, /* a name, where numbers are due */
        {"tcp://300.0.0.1:1", LIG_E_NOTFOUND, "300.0.0.1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_tcp_address address;
        assert_status(parse(cases[i].text, &address), cases[i].status);
        assert_says(cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones),
        cmocka_unit_test(bad_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
