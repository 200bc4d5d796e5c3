/* A transport is a table and one line in builtin.def: this program is linked with a list that has
 * one line more, and everything above finds the fifth transport. It moves bytes as inproc
 * does, under another scheme. */
#include "backend/registry.h"
#include "base/test.h"
#include "group/listen_addresses.h"
#include "net/frame/frame.h"
#include "net/net_side.h"
#include "net/transport_list.h"

#include <ligament/net.h>

#define BACKEND(name) extern const lig_backend_ops ligi_backend_##name;
#define TRANSPORT(name) extern const ligi_transport_ops ligi_transport_##name;
#define LOADED(name)
#define ENGINE(name, package)
#include "builtin.def"
#undef BACKEND
#undef TRANSPORT

static ligi_transport_ops ligi_transport_fifth;

#define BACKEND(name)
#define TRANSPORT(name) &ligi_transport_##name,
const ligi_transport_ops *const ligi_transports[] = {
#include "builtin.def"
    TRANSPORT(fifth) /* the line */
    NULL,
};
#undef BACKEND
#undef TRANSPORT
#undef LOADED

#define BACKEND(name) {#name, &ligi_backend_##name},
#define TRANSPORT(name)
#define LOADED(name)
const ligi_builtin ligi_builtins[] = {
#include "builtin.def"
    {NULL, NULL},
};
#undef BACKEND
#undef LOADED

#define BACKEND(name)
#define LOADED(name) #name,
const char *const ligi_transports_loaded[] = {
#include "builtin.def"
    NULL,
};

/* --- the transport --- */

/* "inproc:~1" and "fifth:~1" have the same length after the scheme. */
static void rename_scheme(const char *from, const char *scheme, char to[LIGI_ADDRESS_BYTES_MAX])
{
    snprintf(to, LIGI_ADDRESS_BYTES_MAX, "%s%s", scheme, strchr(from, ':'));
}

static lig_status fifth_listen(void *self, const ligi_uri *uri,
                               char address[LIGI_ADDRESS_BYTES_MAX])
{
    char inner[LIGI_ADDRESS_BYTES_MAX];
    LIG_TRY(ligi_transport_inproc.listen(self, uri, inner));
    rename_scheme(inner, "fifth", address);
    return LIG_OK;
}

static int fifth_reaches(void *self, const char *address, int same_host)
{
    char inner[LIGI_ADDRESS_BYTES_MAX];
    rename_scheme(address, "inproc", inner);
    return ligi_transport_inproc.reaches(self, inner, same_host);
}

static int make_fifth(void **state)
{
    (void)state;
    ligi_transport_fifth = ligi_transport_inproc;
    ligi_transport_fifth.scheme = "fifth";
    ligi_transport_fifth.near = "fifth:";
    ligi_transport_fifth.listen = fifth_listen;
    ligi_transport_fifth.reaches = fifth_reaches;
    return 0;
}

/* --- what finds it --- */

static void it_is_listed(void **state)
{
    char names[128], uri[LIGI_GROUP_URI_BYTES];

    (void)state;
    ligi_transport_names(names, sizeof names);
    assert_string_equal(names, "inproc, shm, tcp, fifth, ucx");
    assert_ok(lig_transport_check("fifth"));
    assert_ok(ligi_group_check_transport("fifth"));
    assert_int_equal(ligi_group_check_transport("sixth"), LIG_E_UNSUPPORTED);
    assert_non_null(strstr(lig_error_text(), "fifth"));
    assert_ok(ligi_group_uri("fifth:job", uri));
    assert_string_equal(uri, "fifth:job");
    assert_int_equal(ligi_group_fabric("fifth", 0, 0), LIGI_FABRIC_STRANGE);
    assert_false(ligi_group_shares_memory("fifth"));
}

static void members_meet_on_it(const char *chosen)
{
    const ligi_net_options background = {.background = 1}, plain = {0};
    uint8_t card[LIGI_CARD_BYTES_MAX];
    size_t bytes = sizeof card;
    side server, client;
    ligi_link *link;

    assert_ok(side_open(&server, NULL, &background));
    assert_ok(side_open(&client, NULL, &plain));
    assert_ok(ligi_group_listen(server.net, chosen, NULL, 0));
    assert_ok(ligi_net_card(server.net, "10.0.0.7", card, &bytes));
    ligi_connect connect = {.card = card,
                            .card_bytes = bytes,
                            .only = "fifth",
                            .service = LIGI_SERVICE_TEST,
                            .hello = "member",
                            .hello_bytes = 6,
                            .timeout_ns = SIDE_WAIT_NS};
    assert_ok(ligi_net_connect(client.net, &connect, &link));
    assert_ok(side_wait(&client, &client.met, 1));
    assert_string_equal(ligi_link_scheme(link), "fifth");
    assert_true(ligi_link_near(link));
    side_close(&client);
    side_close(&server);
}

static void it_is_used_by_name(void **state)
{
    (void)state;
    members_meet_on_it("fifth");
}

static void it_is_offered_by_auto(void **state)
{
    (void)state;
    members_meet_on_it("auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_listed),
                                       cmocka_unit_test(it_is_used_by_name),
                                       cmocka_unit_test(it_is_offered_by_auto)};
    return cmocka_run_group_tests(tests, make_fifth, NULL);
}
