#include "base/clock.h"
#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "group/group_state.h"
#include "group/group_testing.h"
#include "net/progress.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- meeting --------------------------------------------------------------------------------- */

static void check_meeting(troupe *cast)
{
    size_t expected = cast->server_count + cast->worker_count;
    for (size_t i = 0; i < cast->count; i++)
        expected += cast->actors[i].options.role == LIGI_SCHEDULER;
    for (size_t i = 0; i < cast->count; i++) {
        actor *one = &cast->actors[i];
        ligi_member members[ACTORS];
        assert_int_equal(ligi_group_id(one->group), ligi_group_id(cast->actors[0].group));
        assert_int_equal(ligi_group_members(one->group, members, ACTORS), expected);
        for (size_t j = 0; j < expected; j++) {
            uint8_t blob[LIGI_BLOB_BYTES_MAX];
            size_t bytes;
            assert_int_equal(members[j].state, LIGI_PRESENT);
            assert_ok(ligi_group_check(one->group, members[j].role, members[j].rank, 1));
            assert_ok(ligi_group_blob(one->group, members[j].role, members[j].rank, blob, &bytes));
        }
    }
}

static void meet_at(const char *address, int scheduler)
{
    troupe cast;
    make(&cast, address, 2, 3);
    add_all(&cast);
    if (scheduler)
        add(&cast, LIGI_SCHEDULER, LIGI_RANK_ANY);
    open_all(&cast);
    check_meeting(&cast);
    close_all(&cast);
}

static void test_meets_over_inproc(void **state)
{
    (void)state;
    meet_at("inproc:group-meets", 0);
    meet_at("inproc:group-meets", 1);
}

static void test_scheduler_coordinates_by_role(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:by-role", 1, 1);
    add_all(&cast);
    actor *scheduler = add(&cast, LIGI_SCHEDULER, 0);
    for (size_t i = 0; i < cast.count; i++)
        cast.actors[i].options.coordinator = LIGI_COORDINATOR_BY_ROLE;
    open_all(&cast);
    check_meeting(&cast);
    assert_non_null(scheduler->group->coordinator);
    assert_null(cast.actors[0].group->coordinator);
    close_all(&cast);
}

static void test_assigned_ranks_cover_all(void **state)
{
    (void)state;
    troupe cast;
    int seen[5] = {0};
    make(&cast, "inproc:assigned", 1, 5);
    add(&cast, LIGI_SERVER, 0);
    for (int i = 0; i < 5; i++)
        add(&cast, LIGI_WORKER, LIGI_RANK_ANY);
    open_all(&cast);
    for (int i = 1; i < 6; i++)
        seen[ligi_group_rank(cast.actors[i].group)]++;
    for (int i = 0; i < 5; i++)
        assert_int_equal(seen[i], 1);
    close_all(&cast);
}

static void test_cards_arrive(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:cards", 1, 12);
    add_all(&cast);
    open_all(&cast);
    for (uint32_t rank = 0; rank < 12; rank++) {
        uint8_t card[LIGI_BLOB_BYTES_MAX], got[LIGI_BLOB_BYTES_MAX];
        size_t bytes, card_bytes = sizeof card;
        assert_ok(ligi_net_card(cast.actors[rank].net, NULL, card, &card_bytes));
        assert_ok(ligi_group_blob(cast.actors[5].group, LIGI_WORKER, rank, got, &bytes));
        assert_int_equal(bytes, card_bytes);
        assert_memory_equal(got, card, bytes);
    }
    close_all(&cast);
}

/* --- exchange: tcp with a port of the kernel's --- */

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint8_t all[ACTORS][1024];
    uint32_t count, arrived;
} pool;

typedef struct gatherer {
    pool *gather;
    uint32_t index;
} gatherer;

static lig_status all_gather(void *context, const void *mine, size_t bytes, void *all, size_t count)
{
    gatherer *self = context;
    pool *gather = self->gather;
    assert_int_equal(count, gather->count);
    pthread_mutex_lock(&gather->lock);
    memcpy(gather->all[self->index], mine, bytes);
    gather->arrived++;
    pthread_cond_broadcast(&gather->changed);
    while (gather->arrived < gather->count)
        pthread_cond_wait(&gather->changed, &gather->lock);
    for (uint32_t i = 0; i < gather->count; i++)
        memcpy((uint8_t *)all + i * bytes, gather->all[i], bytes);
    pthread_mutex_unlock(&gather->lock);
    return LIG_OK;
}

static void exchange_all(troupe *cast, pool *gather, gatherer *gatherers)
{
    *gather = (struct pool){.lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER,
                            .count = (uint32_t)cast->count};
    for (uint32_t i = 0; i < cast->count; i++) {
        gatherers[i] = (gatherer){gather, i};
        cast->actors[i].options.exchange = all_gather;
        cast->actors[i].options.exchange_context = &gatherers[i];
        cast->actors[i].options.exchange_index = i;
        cast->actors[i].options.exchange_count = (uint32_t)cast->count;
    }
}

static void exchange_at(const char *address, const char *secret, const char *met_at)
{
    troupe cast;
    pool gather;
    gatherer gatherers[ACTORS];
    make(&cast, "", 2, 3);
    add_all(&cast);
    exchange_all(&cast, &gather, gatherers);
    for (size_t i = 0; i < cast.count; i++) {
        cast.actors[i].secret = secret;
        cast.actors[i].options.address = address;
        cast.actors[i].options.host = "127.0.0.1";
    }
    open_all(&cast);
    check_meeting(&cast);
    assert_non_null(cast.actors[0].group->coordinator);
    assert_non_null(strstr(cast.actors[3].group->address, "tcp://127.0.0.1:"));
    assert_non_null(strstr(cast.actors[0].group->address, met_at));
    close_all(&cast);
}

static void test_exchange_over_tcp(void **state)
{
    (void)state;
    exchange_at("tcp://127.0.0.1:0", NULL, "tcp://127.0.0.1:");
    exchange_at(NULL, NULL, "tcp://127.0.0.1:");
    exchange_at(NULL, "0123456789abcdef0123456789abcdef", "tcp://0.0.0.0:");
}

static void test_exchange_tells_why_process_0_failed(void **state)
{
    (void)state;
    troupe cast;
    pool gather;
    gatherer gatherers[ACTORS];
    make(&cast, "nowhere:1", 1, 1);
    add_all(&cast);
    exchange_all(&cast, &gather, gatherers);
    all_do(&cast, run_open);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(cast.actors[i].status, LIG_OK);
        assert_non_null(strstr(cast.actors[i].text, "process 0 cannot run the rendezvous"));
    }
    close_all(&cast);
}

/* What process 0 put in leads to nobody, and it comes late. */
static lig_status gather_late(void *context, const void *mine, size_t bytes, void *all,
                              size_t count)
{
    (void)count;
    const size_t text_at = sizeof(uint64_t) + sizeof(uint32_t); /* after the mark and the status */
    memcpy(all, mine, bytes);
    snprintf((char *)all + text_at, bytes - text_at, "inproc:left");
    while (ligi_now_ns() < *(const int64_t *)context)
        sched_yield();
    return LIG_OK;
}

/* --- refusals and timeouts --- */

/* The time is one for the exchange and the connection, and at its end the reason is told. */
static void test_timeout_tells_what_was_tried(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "", 1, 1);
    actor *one = add(&cast, LIGI_WORKER, 0);
    int64_t until = ligi_now_ns() + 100 * MS;
    one->options.exchange = gather_late;
    one->options.exchange_context = &until;
    one->options.exchange_index = 1;
    one->options.exchange_count = 2;
    one->options.timeout_ns = 200 * MS;
    all_do(&cast, run_open);
    assert_status(one->status, LIG_E_TIMEOUT);
    assert_non_null(strstr(one->text, "nothing in this process is listening on 'inproc:left'"));
    close_all(&cast);
}

static void test_clash_names_who_has_the_rank(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:clash", 1, 2);
    add_all(&cast);
    open_all(&cast);
    actor *late = add(&cast, LIGI_WORKER, 1);
    start(late, run_open);
    join(late);
    assert_status(late->status, LIG_E_EXISTS);
    assert_non_null(strstr(late->text, "the rank is taken: worker 1 on "));
    actor *wrong = add(&cast, LIGI_WORKER, 1);
    wrong->options.worker_count = 3;
    start(wrong, run_open);
    join(wrong);
    assert_status(wrong->status, LIG_E_INVALID);
    assert_non_null(strstr(wrong->text, "was started for 3 workers"));
    close_all(&cast);
}

static void test_timeout_names_who_has_not_come(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:waits", 1, 3);
    add(&cast, LIGI_SERVER, 0);
    add(&cast, LIGI_WORKER, 1);
    cast.actors[0].options.timeout_ns = 6 * S;
    cast.actors[1].options.timeout_ns = 3 * S;
    all_do(&cast, run_open);
    for (int i = 0; i < 2; i++)
        assert_status(cast.actors[i].status, LIG_E_TIMEOUT);
    assert_non_null(strstr(cast.actors[0].text, "worker 0"));
    assert_non_null(strstr(cast.actors[1].text, "worker 0, worker 2 (2 of 4 have joined)"));
    close_all(&cast);
}

/* The coordinator gives up first: it knows who is there, and who was sent away. */
static void test_timeout_of_the_coordinator_counts_who_is_there(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:gives-up", 1, 3);
    actor *server = add(&cast, LIGI_SERVER, 0), *worker = add(&cast, LIGI_WORKER, 1),
          *wrong = add(&cast, LIGI_WORKER, 0);
    server->options.timeout_ns = 6 * S;
    server->options.liveness_ms = 3000; /* the worker says 20000 and is not taken for dead */
    wrong->options.worker_count = 2;
    all_do(&cast, run_open);
    assert_status(wrong->status, LIG_E_INVALID);
    assert_status(server->status, LIG_E_TIMEOUT);
    assert_non_null(strstr(server->text,
                           "worker 0, worker 2 (2 of 4 have joined); refused: a worker "
                           "on "));
    assert_non_null(strstr(server->text, "was started for 2 workers"));
    assert_status(worker->status, LIG_E_PEER);
    assert_non_null(strstr(worker->text, "worker 0, worker 2 (2 of 4 have joined)"));
    close_all(&cast);
}

static void test_timeout_without_a_coordinator(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:nobody", 1, 1);
    actor *one = add(&cast, LIGI_WORKER, 0);
    one->options.timeout_ns = 200 * MS;
    all_do(&cast, run_open);
    assert_status(one->status, LIG_E_TIMEOUT);
    assert_non_null(strstr(one->text, "inproc:nobody"));
    close_all(&cast);
}

/* The only server is number 0, said or not. */
static void test_only_server_needs_no_rank(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:only", 1, 2);
    add(&cast, LIGI_SERVER, LIGI_RANK_ANY);
    add(&cast, LIGI_WORKER, LIGI_RANK_ANY);
    add(&cast, LIGI_WORKER, LIGI_RANK_ANY);
    open_all(&cast);
    assert_int_equal(ligi_group_rank(cast.actors[0].group), 0);
    close_all(&cast);
}

/* Something that has the port and says nothing: the one that wanted to listen there tells why it
 * did not. */
static void test_address_that_another_program_has(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(other, 8), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&at, &bytes), 0);
    char address[64];
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    troupe cast;
    make(&cast, address, 1, 1);
    actor *server = add(&cast, LIGI_SERVER, 0), *worker = add(&cast, LIGI_WORKER, 0);
    server->options.timeout_ns = worker->options.timeout_ns = 200 * MS;
    all_do(&cast, run_open);
    assert_status(server->status, LIG_E_TIMEOUT);
    assert_non_null(strstr(server->text, "this process would run the rendezvous, but"));
    assert_non_null(strstr(server->text, "in use"));
    assert_status(worker->status, LIG_E_TIMEOUT);
    assert_non_null(strstr(worker->text, "start the scheduler, or member 0"));
    close_all(&cast);
    close(other);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    ligi_net *net;
    ligi_group *group;
    assert_ok(ligi_net_open(&net, &(ligi_net_options){0}));
    ligi_group_options none = {.timeout_ns = S, .address = "inproc:x"},
                       forever = {.timeout_ns = LIG_FOREVER, .worker_count = 1},
                       nowhere = {.timeout_ns = S, .worker_count = 1};
    assert_status(ligi_group_open(&group, net, &none), LIG_E_INVALID);
    assert_status(ligi_group_open(&group, net, &forever), LIG_E_INVALID);
    assert_status(ligi_group_open(&group, net, &nowhere), LIG_E_INVALID);
    ligi_group_close(NULL, 0);
    ligi_net_close(net);
}

/* --- leaving and coming back --- */

static void test_leave_and_rejoin(void **state)
{
    (void)state;
    troupe cast;
    ligi_member member;
    char why[256];
    make(&cast, "inproc:rejoin", 1, 2);
    add_all(&cast);
    open_all(&cast);
    actor *server = &cast.actors[2], *stays = &cast.actors[0];
    close_one(&cast.actors[1]);
    assert_int_equal(event(stays, &member, why), LIGI_CHANGE_GONE);
    assert_int_equal(member.rank, 1);
    assert_int_equal(member.state, LIGI_LEFT);
    assert_status(ligi_group_check(stays->group, LIGI_WORKER, 1, 1), LIG_E_PEER);
    assert_status(ligi_group_barrier(stays->group, LIGI_WORKERS, 0, S), LIG_E_PEER);
    assert_says("worker 1 (it has stopped) is missing");
    actor *again = add(&cast, LIGI_WORKER, LIGI_RANK_ANY);
    start(again, run_open);
    join(again);
    assert_status(again->status, LIG_OK);
    /* Whoever was there knows it before it is let go. */
    assert_ok(ligi_group_check(server->group, LIGI_WORKER, 1, 2));
    assert_int_equal(ligi_group_rank(again->group), 1);
    assert_int_equal(ligi_group_incarnation(again->group), 2);
    assert_int_equal(event(stays, &member, why), LIGI_CHANGE_JOINED);
    assert_status(ligi_group_check(stays->group, LIGI_WORKER, 1, 1), LIG_E_PEER);
    assert_says("stale incarnation");
    ligi_net_lock(again->group->net);
    assert_int_equal(again->group->epoch, 3);
    ligi_net_unlock(again->group->net);
    close_all(&cast);
}

static int all_gone(void *context)
{
    ligi_member members[ACTORS];
    size_t count = ligi_group_members(context, members, ACTORS), gone = 0;
    for (size_t i = 0; i < count; i++)
        gone += members[i].state == LIGI_LEFT || members[i].state == LIGI_LOST;
    return gone == count - 1;
}

/* Telling one of another's leave finds a connection that is ending itself: that is no loss. */
static void test_leaving_together_is_no_loss(void **state)
{
    (void)state;
    troupe cast;
    pool gather;
    gatherer gatherers[ACTORS];
    make(&cast, "tcp://127.0.0.1:0", 1, 8);
    add(&cast, LIGI_SERVER, 0);
    for (uint32_t i = 0; i < 8; i++)
        add(&cast, LIGI_WORKER, i);
    exchange_all(&cast, &gather, gatherers);
    open_all(&cast);
    ligi_group *server = cast.actors[0].group;
    for (int i = 1; i <= 8; i++)
        start(&cast.actors[i], run_close);
    for (int i = 1; i <= 8; i++)
        join(&cast.actors[i]);
    assert_ok(ligi_net_wait(cast.actors[0].net, all_gone, server, 20 * S));
    for (uint32_t i = 0; i < 8; i++) {
        ligi_member member;
        assert_ok(ligi_group_member(server, LIGI_WORKER, i, &member));
        assert_int_equal(member.state, LIGI_LEFT);
    }
    close_all(&cast);
}

static void test_end_of_the_coordinator_ends_all(void **state)
{
    (void)state;
    troupe cast;
    ligi_member member;
    char why[256];
    make(&cast, "inproc:orphans", 1, 2);
    add_all(&cast);
    open_all(&cast);
    actor *waits = &cast.actors[0];
    waits->mask = LIGI_WORKERS;
    waits->timeout_ns = 20 * S;
    start(waits, run_barrier);
    ligi_group_close(cast.actors[2].group, 0);
    cast.actors[2].group = NULL;
    join(waits);
    assert_status(waits->status, LIG_E_PEER);
    assert_int_equal(event(&cast.actors[1], &member, why), LIGI_CHANGE_ORPHANED);
    assert_non_null(strstr(why, "lost the coordinator"));
    assert_status(ligi_group_barrier(cast.actors[1].group, LIGI_WORKERS, 0, S), LIG_E_PEER);
    close_all(&cast);
}

/* --- barriers --- */

static void test_barriers(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:barriers", 1, 3);
    add_all(&cast);
    open_all(&cast);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < cast.count; i++) {
            cast.actors[i].mask = LIGI_WORKERS | LIGI_SERVERS;
            cast.actors[i].timeout_ns = 20 * S;
        }
        all_do(&cast, run_barrier);
        for (size_t i = 0; i < cast.count; i++)
            assert_string_equal(cast.actors[i].text, "");
    }
    actor *alone = &cast.actors[1];
    assert_status(ligi_group_barrier(alone->group, LIGI_WORKERS, 0, 50 * MS), LIG_E_TIMEOUT);
    assert_says("worker 0, worker 2 have not arrived at the barrier");
    assert_status(ligi_group_barrier(alone->group, LIGI_SERVERS, 0, S), LIG_E_INVALID);
    /* The one that gave up is not counted: the others must not pass without it. */
    assert_status(ligi_group_barrier(cast.actors[0].group, LIGI_WORKERS, 0, 50 * MS),
                  LIG_E_TIMEOUT);
    assert_says("worker 1, worker 2");
    assert_ok(ligi_group_barrier(cast.actors[3].group, LIGI_SERVERS, 0, 20 * S));
    close_all(&cast);
}

static void test_barrier_ends_when_one_leaves(void **state)
{
    (void)state;
    troupe cast;
    make(&cast, "inproc:barrier-leave", 1, 2);
    add_all(&cast);
    open_all(&cast);
    actor *waits = &cast.actors[0];
    waits->mask = LIGI_WORKERS;
    waits->timeout_ns = 20 * S;
    start(waits, run_barrier);
    close_one(&cast.actors[1]);
    join(waits);
    assert_status(waits->status, LIG_E_PEER);
    assert_non_null(strstr(waits->text, "worker 1"));
    close_all(&cast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meets_over_inproc),
        cmocka_unit_test(test_scheduler_coordinates_by_role),
        cmocka_unit_test(test_assigned_ranks_cover_all),
        cmocka_unit_test(test_cards_arrive),
        cmocka_unit_test(test_exchange_over_tcp),
        cmocka_unit_test(test_exchange_tells_why_process_0_failed),
        cmocka_unit_test(test_timeout_tells_what_was_tried),
        cmocka_unit_test(test_clash_names_who_has_the_rank),
        cmocka_unit_test(test_timeout_names_who_has_not_come),
        cmocka_unit_test(test_timeout_of_the_coordinator_counts_who_is_there),
        cmocka_unit_test(test_timeout_without_a_coordinator),
        cmocka_unit_test(test_only_server_needs_no_rank),
        cmocka_unit_test(test_address_that_another_program_has),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_leave_and_rejoin),
        cmocka_unit_test(test_leaving_together_is_no_loss),
        cmocka_unit_test(test_end_of_the_coordinator_ends_all),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_barrier_ends_when_one_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
