/* Sessions whose members are threads of one process. What needs processes (kill, stop) is in
 * tests/mesh and tests/params. */
#include "group/session/session.h"

#include "base/test.h"
#include "group/group_info.h"
#include "group/session/session_end.h"
#include "group/session/session_meet.h"
#include "group/session/session_peer.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"

#include <stdio.h>
#include <unistd.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
enum { PEERS = 4, TEXT = 512, LIVENESS_MS = 800 };

/* --- a module --- */

typedef struct one {
    ligi_session session;
    ligi_session_options options;
    ligi_session_peer peers[PEERS];
    uint32_t peer_count;
    uint32_t kind;                   /* in the hello; another one is a mismatch */
    _Atomic int mute;                /* it sends no pings */
    int came, gone, ended, messages; /* guarded by the endpoint's lock */
    lig_status status;
    char text[TEXT];
    pthread_t thread;
} one;

typedef struct greeting {
    uint32_t role, rank, incarnation, kind;
    uint64_t group_id;
} greeting;

static void greet(void *context, ligi_reply *reply)
{
    const one *self = context;
    ligi_group *group = self->session.group;
    greeting own = {.role = self->options.group.role,
                    .rank = self->options.group.rank,
                    .incarnation = group ? ligi_group_incarnation(group) : 0,
                    .kind = self->kind,
                    .group_id = self->session.group_id};
    memcpy(reply->data, &own, sizeof own);
    reply->bytes = sizeof own;
}

static lig_status check(void *context, const ligi_hello *hello, ligi_session_claim *claim)
{
    const one *self = context;
    greeting other;
    assert_int_equal(hello->bytes, sizeof other);
    memcpy(&other, hello->data, sizeof other);
    if (other.kind != self->kind)
        return lig_fail(LIG_E_MISMATCH, "kind %u is not %u", other.kind, self->kind);
    *claim = (ligi_session_claim){other.role, other.rank, other.incarnation, other.group_id};
    return LIG_OK;
}

static lig_status find(void *context, const ligi_session_claim *claim, ligi_session_peer **peer)
{
    one *self = context;
    for (uint32_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].role == claim->role && self->peers[i].rank == claim->rank)
            *peer = &self->peers[i];
    return *peer ? LIG_OK : lig_fail(LIG_E_INVALID, "no peer of rank %u", claim->rank);
}

static void came(ligi_session_peer *peer, const ligi_hello *hello)
{
    (void)hello;
    ((one *)peer->session->context)->came++;
}

static void gone(ligi_session_peer *peer, ligi_member_state before)
{
    (void)before;
    assert_null(peer->link);
    ((one *)peer->session->context)->gone++;
}

static void ended(void *context)
{
    ((one *)context)->ended++;
}

static void say(ligi_session_peer *peer, char word)
{
    (void)ligi_net_send(peer->link, &(ligi_send){.head = &word, .head_bytes = 1}, NULL);
}

static void ping(ligi_session_peer *peer)
{
    if (!((one *)peer->session->context)->mute)
        say(peer, 'p');
}

static lig_status head(ligi_session_peer *peer, const ligi_arrival *arrival, ligi_landing *landing)
{
    one *self = peer->session->context;
    char word = *(const char *)arrival->head;
    (void)landing;
    if (word == 'p' && !self->mute)
        say(peer, 'a');
    self->messages += word == 'm';
    return word == 'x' ? lig_fail(LIG_E_CORRUPT, "no such message") : LIG_OK;
}

#define OPS(all)                                                                                   \
    {                                                                                              \
        .service = LIGI_SERVICE_TEST,                                                              \
        .name = "test",                                                                            \
        .forked = "forked",                                                                        \
        .closed = "closed",                                                                        \
        .needs_all = all,                                                                          \
        .greet = greet,                                                                            \
        .check = check,                                                                            \
        .find = find,                                                                              \
        .came = came,                                                                              \
        .gone = gone,                                                                              \
        .ended = ended,                                                                            \
        .ping = ping,                                                                              \
        .head = head,                                                                              \
    }
static const ligi_session_ops tolerant = OPS(0), fragile = OPS(1);

/* --- members --- */

typedef struct scene {
    char address[64];
    uint32_t servers, workers;
    const ligi_session_ops *ops;
    one members[PEERS + 1]; /* servers, then workers; the last one is the scheduler */
} scene;

static void add_peer(one *self, const char *noun, ligi_role role, uint32_t rank)
{
    ligi_session_peer *peer = &self->peers[self->peer_count++];
    *peer = (ligi_session_peer){.session = &self->session, .noun = noun, .role = role};
    peer->index = peer->rank = rank;
    ligi_session_add(peer);
}

/* With workers: every worker and every server are peers; otherwise all servers. */
static one *add(scene *all, ligi_role role, uint32_t rank)
{
    uint32_t at = role == LIGI_SCHEDULER ? PEERS : rank + (role == LIGI_WORKER ? all->servers : 0);
    one *self = &all->members[at];
    *self = (one){.options = {.group = {.role = role,
                                        .rank = rank,
                                        .server_count = all->servers,
                                        .worker_count = all->workers,
                                        .coordinator = LIGI_COORDINATOR_BY_ROLE,
                                        .address = all->address},
                              .timeout_ns = 20 * S,
                              .liveness_ns = 20 * S,
                              .transport = "inproc",
                              .listens = 1}};
    assert_ok(ligi_session_init(&self->session, all->ops, self));
    for (uint32_t i = role == LIGI_SCHEDULER ? 0 : all->servers; i-- > 0;)
        if (role == LIGI_WORKER || (all->workers == 0 && i != rank))
            add_peer(self, "server", LIGI_SERVER, i);
    for (uint32_t i = role == LIGI_SERVER ? all->workers : 0; i-- > 0;)
        add_peer(self, "worker", LIGI_WORKER, i);
    return self;
}

static void *run_open(void *context)
{
    one *self = context;
    self->status = ligi_session_open(&self->session, &self->options);
    if (self->status == LIG_OK && self->peer_count > 0)
        self->status = ligi_session_meet(&self->session);
    snprintf(self->text, sizeof self->text, "%s", self->status == LIG_OK ? "" : lig_error_text());
    return NULL;
}

static void start(one *self)
{
    assert_int_equal(pthread_create(&self->thread, NULL, run_open, self), 0);
}

static void raise_scene(scene *all, const ligi_session_ops *ops, uint32_t servers, uint32_t workers)
{
    memset(all, 0, sizeof *all);
    snprintf(all->address, sizeof all->address, "inproc:session-%d-%p", (int)getpid(), (void *)all);
    all->ops = ops;
    all->servers = servers;
    all->workers = workers;
}

static void add_all(scene *all)
{
    add(all, LIGI_SCHEDULER, 0);
    for (uint32_t i = 0; i < all->servers; i++)
        add(all, LIGI_SERVER, i);
    for (uint32_t i = 0; i < all->workers; i++)
        add(all, LIGI_WORKER, i);
}

static void open_all(scene *all)
{
    for (size_t i = 0; i <= PEERS; i++)
        if (all->members[i].session.ops)
            start(&all->members[i]);
    for (size_t i = 0; i <= PEERS; i++)
        if (all->members[i].session.ops)
            pthread_join(all->members[i].thread, NULL);
}

static void open_well(scene *all)
{
    add_all(all);
    open_all(all);
    for (size_t i = 0; i <= PEERS; i++)
        if (all->members[i].status != LIG_OK)
            fail_msg("member %zu: %s", i, all->members[i].text);
}

static void close_one(one *self)
{
    if (self->session.ops == NULL)
        return;
    if (self->session.net) {
        ligi_session_disconnect(&self->session, "it has stopped");
        ligi_session_leave(&self->session);
    }
    ligi_session_fini(&self->session);
    self->session.ops = NULL;
}

static void close_all(scene *all)
{
    for (size_t i = 0; i <= PEERS; i++)
        close_one(&all->members[i]);
}

/* --- what is waited for --- */

typedef struct expected {
    const ligi_session_peer *peer;
    ligi_member_state state;
} expected;

static int is_so(void *context)
{
    const expected *what = context;
    return what->peer->state == what->state;
}

static void await_state(one *self, uint32_t at, ligi_member_state state, const char *text)
{
    expected what = {&self->peers[at], state};
    char said[LIGI_SESSION_TEXT_BYTES];
    assert_ok(ligi_net_wait(self->session.net, is_so, &what, 20 * S));
    ligi_session_peer_text(what.peer, said);
    if (text && strcmp(said, text) != 0)
        fail_msg("'%s', not '%s'", said, text);
}

static int is_broken(void *context)
{
    return ((one *)context)->session.broken;
}

static void await_end(one *self, lig_status status, const char *part)
{
    assert_ok(ligi_net_wait(self->session.net, is_broken, self, 20 * S));
    assert_int_equal(ligi_session_usable(&self->session), status);
    assert_says(part);
    assert_int_equal(self->ended, 1);
}

static int has_message(void *context)
{
    return ((one *)context)->messages > 0;
}

static void tell(one *self, uint32_t at, char word)
{
    ligi_net_lock(self->session.net);
    say(&self->peers[at], word);
    ligi_net_unlock(self->session.net);
    ligi_net_wake(self->session.net);
}

/* Of the sessions alone: the group is not to expel anyone when the machine is busy. */
static void set_liveness(scene *all)
{
    for (int i = 0; i < PEERS; i++)
        all->members[i].session.liveness_ns = LIVENESS_MS * MS;
}

static lig_status barrier(one *self)
{
    return ligi_session_barrier(&self->session, LIGI_SERVERS, 0, 20 * S);
}

/* --- tests --- */

static void test_all_meet(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 2, 2);
    open_well(&all);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(all.members[i].came, 2);
        assert_int_equal(all.members[i].peers[1].incarnation, 1);
        tell(&all.members[i], 0, 'm');
    }
    for (int i = 1; i < PEERS; i += 2) /* the last one added is the first one of the list */
        assert_ok(ligi_net_wait(all.members[i].session.net, has_message, &all.members[i], 20 * S));
    close_all(&all);
}

/* Who leaves is gone; the others continue, unless they need all. */
static void test_one_leaves(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 2, 1);
    open_well(&all);
    close_one(&all.members[0]);
    await_state(&all.members[2], 1, LIGI_LEFT, "server 0 has left: it has stopped");
    assert_ok(ligi_session_usable(&all.members[2].session));
    assert_int_equal(all.members[2].peers[0].state, LIGI_PRESENT);
    close_all(&all);

    raise_scene(&all, &fragile, 3, 0);
    open_well(&all);
    ligi_net_lock(all.members[2].session.net);
    all.members[2].session.leaving = 1;
    ligi_net_unlock(all.members[2].session.net);
    close_one(&all.members[0]);
    await_end(&all.members[1], LIG_E_PEER, "server 0 has left: it has stopped");
    assert_int_equal(barrier(&all.members[1]), LIG_E_PEER);
    assert_says("server 0 has left: it has stopped");
    await_state(&all.members[2], 1, LIGI_LEFT, NULL);
    assert_ok(ligi_session_usable(&all.members[2].session));
    close_all(&all);
}

/* A message that cannot be: the sender is lost to the receiver, and learns why. */
static void test_protocol_error(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 1, 1);
    open_well(&all);
    tell(&all.members[1], 0, 'x');
    await_state(&all.members[0], 0, LIGI_LOST, "worker 0 is lost: no such message");
    await_state(&all.members[1], 0, LIGI_LOST, NULL);
    assert_non_null(strstr(all.members[1].peers[0].why, "no such message"));
    close_all(&all);
}

static void suspect(one *self, ligi_member_state state, const char *why)
{
    ligi_net_lock(self->session.net);
    ligi_session_suspect(&self->peers[0], state, why);
    assert_int_equal(self->peers[0].state, LIGI_PRESENT);
    ligi_net_unlock(self->session.net);
}

/* A suspected peer is lost after the grace period; what its link says meanwhile counts more. */
static void test_doubt(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 1, 1);
    open_well(&all);
    suspect(&all.members[0], LIGI_LOST, "someone says so");
    await_state(&all.members[0], 0, LIGI_LOST, "worker 0 is lost: someone says so");
    await_state(&all.members[1], 0, LIGI_LEFT, "server 0 has left: someone says so");
    close_all(&all);

    raise_scene(&all, &tolerant, 1, 1);
    open_well(&all);
    ligi_net_lock(all.members[0].session.net);
    suspect(&all.members[0], LIGI_LOST, "someone says so");
    all.members[0].peers[0].doubt_ns += 20 * S;
    ligi_net_unlock(all.members[0].session.net);
    ligi_session_disconnect(&all.members[1].session, "it is tired");
    await_state(&all.members[0], 0, LIGI_LEFT, "worker 0 has left: it is tired");
    assert_int_equal(all.members[0].gone, 1);
    close_all(&all);
}

/* A member is said to have left, but its link stays: it is gone once the link has been silent for
 * liveness_ns, and not before. */
static void test_left_with_an_open_link(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 1, 1);
    open_well(&all);
    one *server = &all.members[0];
    ligi_net_lock(server->session.net);
    suspect(server, LIGI_LEFT, "someone says so");
    int64_t silent_ns = ligi_link_heard_ns(server->peers[0].link) + server->session.liveness_ns;
    assert_int_equal(ligi_session_judge(&server->session, silent_ns - 1), silent_ns);
    assert_int_equal(server->peers[0].state, LIGI_PRESENT);
    (void)ligi_session_judge(&server->session, silent_ns);
    assert_int_equal(server->peers[0].state, LIGI_LEFT);
    ligi_net_unlock(server->session.net);
    close_all(&all);

    raise_scene(&all, &tolerant, 1, 1); /* the same by the group's own report */
    open_well(&all);
    set_liveness(&all);
    ligi_session_leave(&all.members[1].session);
    await_state(&all.members[0], 0, LIGI_LEFT, "worker 0 has left: it has stopped");
    close_all(&all);
}

static void test_needed_member_leaves_before_it_connects(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &fragile, 2, 0);
    add_all(&all);
    all.members[1].peer_count = 0; /* it joins, but meets nobody */
    all.members[1].options.listens = 0;
    start(&all.members[PEERS]);
    start(&all.members[0]);
    start(&all.members[1]);
    pthread_join(all.members[1].thread, NULL);
    assert_int_equal(all.members[1].status, LIG_OK);
    close_one(&all.members[1]);
    pthread_join(all.members[0].thread, NULL);
    assert_int_equal(all.members[0].status, LIG_E_PEER);
    assert_non_null(strstr(all.members[0].text, "server 1 has left: "));
    pthread_join(all.members[PEERS].thread, NULL);
    close_all(&all);
}

/* Without its coordinator a session detects silent peers itself; one that needs all ends. */
static void test_coordinator_ends(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 2, 1);
    open_well(&all);
    set_liveness(&all);
    close_one(&all.members[PEERS]);
    all.members[0].mute = 1;
    await_state(&all.members[2], 1, LIGI_LOST, NULL);
    assert_non_null(strstr(all.members[2].peers[1].why, "it has been silent for "));
    assert_int_equal(all.members[2].peers[0].state, LIGI_PRESENT);
    assert_ok(ligi_session_usable(&all.members[2].session));
    close_all(&all);

    raise_scene(&all, &fragile, 2, 0);
    open_well(&all);
    close_one(&all.members[PEERS]);
    await_end(&all.members[0], LIG_E_PEER, "lost the coordinator at ");
    await_end(&all.members[1], LIG_E_PEER, "");
    close_all(&all);
}

static void open_mismatched(scene *all)
{
    add_all(all);
    all->members[1].kind = 7;
    start(&all->members[PEERS]);
    start(&all->members[0]);
    start(&all->members[1]);
    pthread_join(all->members[1].thread, NULL);
    close_one(&all->members[1]);
    pthread_join(all->members[0].thread, NULL);
    pthread_join(all->members[PEERS].thread, NULL);
}

/* Peers that disagree cannot meet: for those who need all that is the end, with its own status. */
static void test_mismatch(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &fragile, 2, 0);
    open_mismatched(&all);
    assert_int_equal(all.members[1].status, LIG_E_MISMATCH);
    assert_non_null(strstr(all.members[1].text, "kind 7 is not 0"));
    assert_int_equal(all.members[0].status, LIG_E_PEER);
    assert_non_null(strstr(all.members[0].text, "server 1 has left: "));
    close_all(&all);

    raise_scene(&all, &tolerant, 1, 1);
    open_mismatched(&all);
    assert_int_equal(all.members[1].status, LIG_E_PEER);
    assert_non_null(strstr(all.members[1].text, "server 0 is lost: "));
    assert_int_equal(all.members[0].status, LIG_OK);
    close_all(&all);
}

/* One incarnation has one link. */
static void test_second_link_is_refused(void **state)
{
    (void)state;
    scene all;
    raise_scene(&all, &tolerant, 1, 1);
    open_well(&all);
    one *worker = &all.members[1];
    ligi_session_peer second = worker->peers[0];
    uint8_t card[LIGI_CARD_BYTES_MAX];
    ligi_connect to = {.card = card, .card_bytes = sizeof card, .timeout_ns = 20 * S};
    assert_ok(ligi_net_card(all.members[0].session.net, NULL, card, &to.card_bytes));
    ligi_net_lock(worker->session.net);
    second.state = LIGI_AWAITED;
    assert_ok(ligi_session_connect(&second, &to));
    ligi_net_unlock(worker->session.net);
    expected what = {&second, LIGI_LOST};
    assert_ok(ligi_net_wait(worker->session.net, is_so, &what, 20 * S));
    assert_non_null(strstr(second.why, "worker 0 is already connected"));
    assert_int_equal(worker->peers[0].state, LIGI_PRESENT);
    close_all(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_meet),
        cmocka_unit_test(test_one_leaves),
        cmocka_unit_test(test_protocol_error),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_left_with_an_open_link),
        cmocka_unit_test(test_needed_member_leaves_before_it_connects),
        cmocka_unit_test(test_coordinator_ends),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_second_link_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
