/* What comes to a coordinator's door and is no member. */
#include "group/group_state.h"
#include "group/group_testing.h"
#include "group/rendezvous/host_names.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "reserved_port.h"

#include <unistd.h>

typedef struct stranger {
    ligi_net *net;
    int ended;
    lig_status status;
    char sentence[256];
} stranger;

static lig_status stranger_met(void *context, ligi_link *link, const ligi_hello *hello,
                               ligi_reply *reply)
{
    (void)context, (void)link, (void)hello, (void)reply;
    return LIG_OK;
}

static lig_status stranger_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                                ligi_landing *landing)
{
    (void)context, (void)link, (void)arrival, (void)landing;
    return LIG_OK;
}

static void stranger_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    stranger *self = context;
    self->status = status;
    snprintf(self->sentence, sizeof self->sentence, "%s", sentence);
    self->ended = 1;
    ligi_link_close(link, NULL);
}

static int is_ended(void *context)
{
    return ((stranger *)context)->ended;
}

static const ligi_net_hooks stranger_hooks = {
    .met = stranger_met, .head = stranger_head, .lost = stranger_lost};

/* Says `count` heads to the coordinator, and is shown out with that sentence. */
static void intrude(const char *address, const ligi_send *sends, size_t count, const char *part)
{
    stranger self = {0};
    ligi_link *link;
    assert_ok(ligi_net_open(&self.net, &(ligi_net_options){0}));
    assert_ok(ligi_net_serve(self.net, LIGI_SERVICE_GROUP, &stranger_hooks, &self));
    assert_ok(ligi_net_connect(
        self.net, &(ligi_connect){.address = address, .service = LIGI_SERVICE_GROUP}, &link));
    for (size_t i = 0; i < count; i++) {
        int done;
        assert_ok(ligi_net_send(link, &sends[i], &done));
    }
    assert_ok(ligi_net_wait(self.net, is_ended, &self, 20 * S));
    if (strstr(self.sentence, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, self.sentence);
    ligi_net_close(self.net);
}

static void test_strangers_are_shown_out(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:strangers", 1, 1);
    add_all(&cast);
    for (size_t i = 0; i < cast.count; i++)
        cast.actors[i].options.liveness_ms = 4000;
    open_all(&cast);
    static const uint8_t beat[] = {1, 32}, nonsense[] = {1, 200, 3}, future[] = {9, 32};
    static uint8_t join[] = {1, 1, 1, 7, 0, 0, 0, 1, 0, 0, 0,   1, 0, 0,
                             0, 1, 0, 0, 0, 5, 0, 0, 0, 1, 'h', 0, 0};
    char payload[100] = {0};
    struct iovec piece = {payload, sizeof payload};
    const ligi_send sends[] = {{.head = beat, .head_bytes = sizeof beat},
                               {.head = nonsense, .head_bytes = sizeof nonsense},
                               {.head = future, .head_bytes = sizeof future},
                               {.head = join, .head_bytes = sizeof join},
                               {.head = beat, .head_bytes = 0},
                               {.head = beat, .head_bytes = 2, .iov = &piece, .count = 1}};
    intrude(cast.address, &sends[0], 1, "joins too late");
    intrude(cast.address, &sends[1], 1, "malformed group message");
    intrude(cast.address, &sends[2], 1, "the peer has version 9");
    intrude(cast.address, &sends[3], 1, "refused");
    intrude(cast.address, &sends[4], 1, "malformed group message");
    intrude(cast.address, &sends[5], 1, "has no payload");
    intrude(cast.address, sends, 0, "it has not asked to join");
    for (size_t i = 0; i < cast.count; i++) {
        cast.actors[i].mask = LIGI_WORKERS | LIGI_SERVERS;
        cast.actors[i].timeout_ns = 20 * S;
    }
    all_do(&cast, run_barrier);
    for (size_t i = 0; i < cast.count; i++)
        assert_string_equal(cast.actors[i].text, "");
    close_all(&cast);
}

/* --- the same secret, another group --- */

#define SECRET "0123456789abcdef0123456789abcdef"

typedef struct door { /* what an actor hears of links of the test's service */
    stranger heard;
    ligi_link *link;
} door;

static int is_decided(void *context)
{
    const door *self = context;
    return self->heard.ended || ligi_link_up(self->link);
}

/* A group of server 0 and worker 0 at a port of the kernel's choice. */
static void meet_with_secret(troupe *cast, door doors[2], const char *group)
{
    make(cast, "tcp://127.0.0.1:0", 1, 1);
    add_all(cast);
    for (size_t i = 2; i-- > 0;) { /* the server first: it knows the port */
        actor *one = &cast->actors[i];
        char address[LIGI_ADDRESS_BYTES_MAX];
        ligi_net_options options = {
            .background = 1, .secret = SECRET, .secret_bytes = 32, .group = group};
        assert_ok(ligi_net_open(&one->net, &options));
        doors[i] = (door){.heard.net = one->net};
        assert_ok(ligi_net_serve(one->net, LIGI_SERVICE_TEST, &stranger_hooks, &doors[i].heard));
        assert_ok(ligi_net_listen(one->net, "tcp://127.0.0.1:0", address));
        assert_ok(ligi_net_listen(one->net, "shm:", address));
    }
}

static void *run_join(void *context)
{
    actor *one = context;
    keep(one, ligi_group_open(&one->group, one->net, &one->options));
    return NULL;
}

static void meet_all(troupe *cast, door doors[2], const char *group)
{
    meet_with_secret(cast, doors, group);
    int port = reserve_port(cast->address);
    all_do(cast, run_join);
    for (size_t i = 0; i < cast->count; i++)
        assert_string_equal(cast->actors[i].text, "");
    close(port); /* the coordinator listens on it */
}

/* The worker of `from` connects to the server of `to`. */
static lig_status knock(troupe *from, door *self, troupe *to, const char *only)
{
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    ligi_connect how = {
        .card = card, .only = only, .service = LIGI_SERVICE_TEST, .timeout_ns = 20 * S};
    assert_ok(ligi_group_blob(to->actors[1].group, LIGI_SERVER, 0, card, &how.card_bytes));
    ligi_net *net = from->actors[0].net;
    self->heard.ended = 0;
    ligi_net_lock(net);
    lig_status status = ligi_net_connect(net, &how, &self->link);
    ligi_net_unlock(net);
    assert_ok(status);
    assert_ok(ligi_net_wait(net, is_decided, self, 20 * S));
    return self->heard.ended ? self->heard.status : LIG_OK;
}

static void test_a_secret_of_two_groups_opens_one(void **state)
{
    (void)state;
    troupe one, two;
    door ones[2], twos[2];
    meet_all(&one, ones, "mesh");
    meet_all(&two, twos, "mesh");
    assert_int_equal(knock(&one, &ones[0], &one, "tcp"), LIG_OK);
    assert_int_equal(knock(&one, &ones[0], &one, "shm"), LIG_OK); /* the system checks the user */
    assert_int_equal(knock(&two, &twos[0], &one, "tcp"), LIG_E_DENIED);
    assert_non_null(strstr(twos[0].heard.sentence, "same group"));
    assert_int_equal(knock(&one, &ones[0], &two, "tcp"), LIG_E_DENIED);
    close_all(&one);
    close_all(&two);
}

/* Both would meet at one address: another module, or another version, is not let in. */
static void test_another_module_does_not_join(void **state)
{
    (void)state;
    troupe mesh, params;
    door doors[2], others[2];
    meet_all(&mesh, doors, "mesh");
    meet_with_secret(&params, others, "params");
    snprintf(params.address, sizeof params.address, "%s", mesh.address);
    actor *other = &params.actors[0];
    start(other, run_join);
    join(other);
    assert_int_equal(other->status, LIG_E_DENIED);
    assert_non_null(strstr(other->text, "version of Ligament"));
    close_all(&params);
    close_all(&mesh);
}

/* A holder of the rendezvous' key that is no member: it knows no group's id. */
static void test_the_rendezvous_key_opens_no_member(void **state)
{
    (void)state;
    troupe cast;
    door doors[2], own = {0};
    char context[32], port[16];
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    meet_all(&cast, doors, "mesh");
    ligi_net_options options = {.secret = SECRET, .secret_bytes = 32};
    ligi_group_port_of(cast.address, port, sizeof port);
    snprintf(context, sizeof context, "mesh meet %s", port);
    options.group = context; /* without a group every service takes this key */
    assert_ok(ligi_net_open(&own.heard.net, &options));
    assert_ok(ligi_net_serve(own.heard.net, LIGI_SERVICE_TEST, &stranger_hooks, &own.heard));
    ligi_connect how = {
        .card = card, .only = "tcp", .service = LIGI_SERVICE_TEST, .timeout_ns = 20 * S};
    assert_ok(ligi_group_blob(cast.actors[1].group, LIGI_SERVER, 0, card, &how.card_bytes));
    assert_ok(ligi_net_connect(own.heard.net, &how, &own.link));
    assert_ok(ligi_net_wait(own.heard.net, is_decided, &own, 20 * S));
    assert_true(own.heard.ended);
    assert_int_equal(own.heard.status, LIG_E_DENIED);
    assert_non_null(strstr(own.heard.sentence, "not a member of this group"));
    ligi_net_close(own.heard.net);
    close_all(&cast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers_are_shown_out),
        cmocka_unit_test(test_a_secret_of_two_groups_opens_one),
        cmocka_unit_test(test_another_module_does_not_join),
        cmocka_unit_test(test_the_rendezvous_key_opens_no_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
