#include "group/roster/barrier_release.h"
#include "group/roster/roster_liveness.h"

#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>

#define MS INT64_C(1000000)
#define LIVENESS (1000 * MS)

static ligi_roster open_roster(uint32_t servers, uint32_t workers, uint32_t group_size)
{
    ligi_roster roster;
    assert_ok(ligi_roster_init(&roster, &(ligi_group_options){.server_count = servers,
                                                              .worker_count = workers,
                                                              .group_size = group_size,
                                                              .liveness_ms = 1000}));
    return roster;
}

static ligi_join join_of(const ligi_roster *roster, ligi_role role, uint32_t rank, uint32_t pid)
{
    ligi_join join = {.role = role,
                      .rank = rank,
                      .server_count = roster->server_count,
                      .worker_count = roster->worker_count,
                      .group_size = roster->group_size,
                      .pid = pid,
                      .blob_bytes = 1};
    snprintf(join.host, sizeof join.host, "host%u", pid % 3);
    join.blob[0] = (uint8_t)pid;
    return join;
}

static void come(ligi_roster *roster, uint64_t who, ligi_role role, uint32_t rank)
{
    ligi_join join = join_of(roster, role, rank, (uint32_t)who);
    assert_ok(ligi_roster_join(roster, who, &join, 0));
}

/* The acts as letters with whom they concern: "R2" roster to 2, "G2" go, "N3" no, "P1" probe, "X1"
 * expel, "C" change of a seat, "b1" barrier passed, "f1" failed. */
static const char *acts(ligi_roster *roster)
{
    static char text[512];
    static const char letters[] = "NPRCGXbf";
    size_t used = 0;
    ligi_act act;
    text[0] = '\0';
    while (ligi_roster_next(roster, &act)) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%c", used > 0 ? " " : "",
                                 letters[act.kind]);
        used += act.kind == LIGI_ACT_CHANGE
                    ? (size_t)snprintf(text + used, sizeof text - used, "%zu%c%llu", act.seat,
                                       "aplx"[act.member.state], (unsigned long long)act.epoch)
                    : (size_t)snprintf(text + used, sizeof text - used, "%llu",
                                       (unsigned long long)act.who);
    }
    return text;
}

static void expect(ligi_roster *roster, const char *expected)
{
    assert_string_equal(acts(roster), expected);
}

static void test_forms_when_all_are_there(void **state)
{
    (void)state;
    ligi_roster roster = open_roster(1, 2, 1);
    char text[200];
    come(&roster, 11, LIGI_WORKER, 1);
    come(&roster, 12, LIGI_SERVER, 0);
    expect(&roster, "");
    ligi_roster_awaited(&roster, text, sizeof text);
    assert_string_equal(text, "worker 0 (2 of 3 have joined)");
    come(&roster, 13, LIGI_WORKER, 0);
    expect(&roster, "R12 R13 R11");
    ligi_roster_awaited(&roster, text, sizeof text);
    assert_string_equal(text, "");
    assert_ok(ligi_roster_confirm(&roster, 11, 1));
    assert_ok(ligi_roster_confirm(&roster, 12, 1));
    expect(&roster, "");
    assert_ok(ligi_roster_confirm(&roster, 13, 1));
    expect(&roster, "G12 G13 G11");
    ligi_roster_fini(&roster);
}

static ligi_roster formed(uint32_t servers, uint32_t workers)
{
    ligi_roster roster = open_roster(servers, workers, 1);
    uint64_t who = 1;
    for (uint32_t i = 0; i < servers; i++)
        come(&roster, who++, LIGI_SERVER, i);
    for (uint32_t i = 0; i < workers; i++)
        come(&roster, who++, LIGI_WORKER, i);
    for (uint64_t i = 1; i < who; i++)
        assert_ok(ligi_roster_confirm(&roster, i, 1));
    assert_int_equal(roster.formed, 1);
    acts(&roster);
    return roster;
}

static void test_ranks_are_given_last(void **state)
{
    (void)state;
    ligi_roster roster = open_roster(0, 3, 1);
    char text[200];
    come(&roster, 1, LIGI_WORKER, LIGI_RANK_ANY);
    ligi_roster_awaited(&roster, text, sizeof text);
    assert_string_equal(text, "2 more workers (1 of 3 have joined)");
    come(&roster, 2, LIGI_WORKER, 0);
    come(&roster, 3, LIGI_WORKER, LIGI_RANK_ANY);
    assert_int_equal(ligi_roster_find(&roster, 1)->member.rank, 1);
    assert_int_equal(ligi_roster_find(&roster, 3)->member.rank, 2);
    expect(&roster, "R2 R1 R3");
    come(&roster, 4, LIGI_WORKER, LIGI_RANK_ANY);
    expect(&roster, "N4");
    ligi_roster_fini(&roster);
}

static void test_requests_go_before_the_unranked(void **state)
{
    (void)state;
    ligi_roster roster = open_roster(0, 3, 1);
    come(&roster, 1, LIGI_WORKER, LIGI_RANK_ANY);
    come(&roster, 2, LIGI_WORKER, LIGI_RANK_ANY);
    come(&roster, 3, LIGI_WORKER, 0);
    expect(&roster, "R3 R1 R2");
    ligi_roster_fini(&roster);
}

static void refused_with(ligi_roster *roster, lig_status status, const char *part)
{
    ligi_act act;
    assert_int_equal(ligi_roster_next(roster, &act), 1);
    assert_int_equal(act.kind, LIGI_ACT_REFUSE);
    assert_status(act.status, status);
    if (strstr(act.text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, act.text);
    assert_int_equal(ligi_roster_next(roster, &act), 0);
}

static void test_refusals_say_why(void **state)
{
    (void)state;
    ligi_roster roster = open_roster(1, 2, 1);
    ligi_join other = join_of(&roster, LIGI_WORKER, 0, 7);
    other.worker_count = 4;
    assert_ok(ligi_roster_join(&roster, 9, &other, 0));
    refused_with(&roster, LIG_E_INVALID, "started for 4 workers and 1 servers");
    come(&roster, 8, LIGI_WORKER, 2);
    refused_with(&roster, LIG_E_INVALID, "requests rank 2, but this group has 2 workers");
    come(&roster, 5, LIGI_WORKER, 1);
    come(&roster, 6, LIGI_WORKER, 1);
    expect(&roster, "P5");
    assert_ok(ligi_roster_answer(&roster, 5, 99));
    expect(&roster, "");
    assert_ok(ligi_roster_answer(&roster, 5, 1));
    refused_with(&roster, LIG_E_EXISTS, "worker 1 on host2 (pid 5) has it and is alive");
    ligi_roster_fini(&roster);
}

static void test_counts(void **state)
{
    (void)state;
    ligi_roster roster;
    ligi_group_options none = {0}, many = {.worker_count = 5000}, odd = {.worker_count = 3};
    odd.group_size = 2;
    assert_status(ligi_roster_init(&roster, &none), LIG_E_INVALID);
    assert_status(ligi_roster_init(&roster, &many), LIG_E_LIMIT);
    assert_status(ligi_roster_init(&roster, &odd), LIG_E_INVALID);
    assert_says("groups of 2");
}

static void test_lost_and_back(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 2); /* server 0 is 1, workers are 2 and 3 */
    assert_ok(ligi_roster_end(&roster, 3, "its connection ended"));
    expect(&roster, "C2l2");
    assert_ok(ligi_roster_end(&roster, 3, "again"));
    expect(&roster, "");
    come(&roster, 9, LIGI_WORKER, 1);
    assert_int_equal(ligi_roster_find(&roster, 9)->member.incarnation, 2);
    expect(&roster, "C2p3 R9");
    assert_ok(ligi_roster_confirm(&roster, 1, 3));
    assert_ok(ligi_roster_confirm(&roster, 9, 3));
    expect(&roster, "");
    assert_ok(ligi_roster_confirm(&roster, 2, 3));
    expect(&roster, "G9");
    assert_ok(ligi_roster_leave(&roster, 2));
    expect(&roster, "C1x4");
    ligi_roster_fini(&roster);
}

static void test_a_loss_frees_who_waits_for_its_word(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 2);
    assert_ok(ligi_roster_end(&roster, 3, "gone"));
    come(&roster, 9, LIGI_WORKER, 1);
    acts(&roster);
    assert_ok(ligi_roster_confirm(&roster, 1, 3));
    assert_ok(ligi_roster_confirm(&roster, 9, 3));
    assert_ok(ligi_roster_end(&roster, 2, "gone"));
    expect(&roster, "C1l4 G9");
    ligi_roster_fini(&roster);
}

static void test_confirmations_are_checked(void **state)
{
    (void)state;
    ligi_roster roster = formed(0, 2);
    assert_ok(ligi_roster_end(&roster, 2, "gone"));
    come(&roster, 9, LIGI_WORKER, 1);
    acts(&roster);
    assert_ok(ligi_roster_confirm(&roster, 9, 3));
    assert_ok(ligi_roster_confirm(&roster, 1, 99)); /* of an epoch that was never told */
    expect(&roster, "");
    assert_ok(ligi_roster_confirm(&roster, 1, 3));
    expect(&roster, "G9");
    assert_ok(ligi_roster_confirm(&roster, 1, 2)); /* late: it knows more than that */
    assert_int_equal(ligi_roster_find(&roster, 1)->confirmed, 3);
    ligi_roster_fini(&roster);
}

static void test_contest_is_won_by_a_loss(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 2);
    come(&roster, 9, LIGI_WORKER, 1);
    come(&roster, 10, LIGI_WORKER, 1);
    expect(&roster, "P3 P3");
    assert_ok(ligi_roster_end(&roster, 3, "its connection ended"));
    expect(&roster, "C2l2 C2p3 R9 N10");
    ligi_roster_fini(&roster);
}

static void test_silence(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 2);
    assert_ok(ligi_roster_tick(&roster, 0));
    for (int64_t now = 100; now <= 1000; now += 100) {
        ligi_roster_hear(&roster, 1, now * MS);
        ligi_roster_hear(&roster, 2, now * MS);
        assert_ok(ligi_roster_tick(&roster, now * MS));
        expect(&roster, "");
    }
    ligi_roster_hear(&roster, 1, 1001 * MS);
    assert_ok(ligi_roster_tick(&roster, 1001 * MS));
    expect(&roster, "X3 C2l2");
    /* Who sleeps itself does not blame the others. */
    assert_ok(ligi_roster_tick(&roster, 9000 * MS));
    expect(&roster, "");
    ligi_roster_hear(&roster, 2, 1000 * MS); /* its last word is from before */
    assert_ok(ligi_roster_tick(&roster, 9400 * MS));
    expect(&roster, "");
    assert_ok(ligi_roster_tick(&roster, 9800 * MS));
    assert_ok(ligi_roster_tick(&roster, 10001 * MS));
    expect(&roster, "X1 C0l3 X2 C1l4");
    ligi_roster_fini(&roster);
}

static void test_before_it_forms_a_loss_is_no_epoch(void **state)
{
    (void)state;
    ligi_roster roster = open_roster(1, 1, 1);
    come(&roster, 1, LIGI_WORKER, 0);
    assert_ok(ligi_roster_end(&roster, 1, "gone"));
    expect(&roster, "");
    assert_int_equal(roster.seats[1].member.state, LIGI_AWAITED);
    come(&roster, 2, LIGI_WORKER, 0);
    come(&roster, 3, LIGI_SERVER, 0);
    expect(&roster, "R3 R2");
    assert_int_equal(roster.epoch, 1);
    ligi_roster_fini(&roster);
}

static void test_scheduler_may_come_late(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 1);
    come(&roster, 7, LIGI_SCHEDULER, LIGI_RANK_ANY);
    expect(&roster, "C2p2 R7");
    ligi_roster_fini(&roster);
}

/* --- barriers -------------------------------------------------------------------------------- */

static void arrive(ligi_barriers *barriers, ligi_roster *roster, uint64_t who, uint32_t mask,
                   uint32_t flags)
{
    ligi_waiter waiter = {.who = who, .number = 70 + who, .mask = mask, .flags = flags};
    assert_ok(ligi_barriers_arrive(barriers, roster, &waiter));
}

static void test_barrier(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 2);
    ligi_barriers barriers = {0};
    arrive(&barriers, &roster, 2, LIGI_WORKERS, 0);
    arrive(&barriers, &roster, 1, LIGI_WORKERS | LIGI_SERVERS, 0);
    expect(&roster, "");
    arrive(&barriers, &roster, 3, LIGI_WORKERS, 0);
    expect(&roster, "b2 b3");
    arrive(&barriers, &roster, 2, LIGI_SERVERS, 0);
    expect(&roster, "f2");
    arrive(&barriers, &roster, 1, LIGI_WORKERS | LIGI_SERVERS, 0);
    expect(&roster, "f1");
    arrive(&barriers, &roster, 2, 255, 0);
    expect(&roster, "f2");
    arrive(&barriers, &roster, 55, LIGI_WORKERS, 0);
    expect(&roster, "");
    ligi_barriers_fini(&barriers);
    ligi_roster_fini(&roster);
}

static void failed_with(ligi_roster *roster, lig_status status, const char *text)
{
    ligi_act act;
    assert_int_equal(ligi_roster_next(roster, &act), 1);
    assert_int_equal(act.kind, LIGI_ACT_FAIL);
    assert_status(act.status, status);
    assert_string_equal(act.text, text);
}

/* Who finalizes counts as arrived where others still do, and comes to no barrier any more. */
static void test_stages(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 3);
    ligi_barriers barriers = {0};
    arrive(&barriers, &roster, 2, LIGI_WORKERS, 0);
    arrive(&barriers, &roster, 3, LIGI_WORKERS, LIGI_BARRIER_STAGE(1u));
    failed_with(&roster, LIG_E_INVALID,
                "barrier cannot complete: worker 1 is already at a later one");
    expect(&roster, "");
    arrive(&barriers, &roster, 2, LIGI_WORKERS, LIGI_BARRIER_STAGE(1u));
    expect(&roster, "");
    arrive(&barriers, &roster, 4, LIGI_WORKERS, LIGI_BARRIER_STAGE(2u));
    expect(&roster, "b3 b2");
    arrive(&barriers, &roster, 2, LIGI_WORKERS, LIGI_BARRIER_STAGE(2u));
    arrive(&barriers, &roster, 3, LIGI_WORKERS, LIGI_BARRIER_STAGE(2u));
    expect(&roster, "b4 b2 b3");
    arrive(&barriers, &roster, 2, LIGI_WORKERS, LIGI_BARRIER_STAGE(4u));
    expect(&roster, "f2");
    arrive(&barriers, &roster, 3, LIGI_WORKERS, LIGI_BARRIER_STAGE(1u) + 1);
    expect(&roster, "f3");
    ligi_barriers_fini(&barriers);
    ligi_roster_fini(&roster);
}

static void test_barrier_names_the_missing(void **state)
{
    (void)state;
    ligi_roster roster = formed(1, 3);
    ligi_barriers barriers = {0};
    arrive(&barriers, &roster, 2, LIGI_WORKERS | LIGI_SERVERS, 0);
    assert_ok(ligi_barriers_cancel(&barriers, &roster, 2, 72));
    failed_with(&roster, LIG_E_TIMEOUT,
                "server 0, worker 1, worker 2 have not arrived at the barrier");
    arrive(&barriers, &roster, 2, LIGI_WORKERS, 0);
    expect(&roster, "");
    assert_ok(ligi_roster_end(&roster, 4, "its connection ended"));
    expect(&roster, "C3l2");
    assert_ok(ligi_barriers_review(&barriers, &roster));
    failed_with(&roster, LIG_E_PEER,
                "barrier cannot complete: worker 2 (its connection ended) is missing");
    expect(&roster, "");
    arrive(&barriers, &roster, 3, LIGI_WORKERS, 0);
    expect(&roster, "f3");
    ligi_barriers_fini(&barriers);
    ligi_roster_fini(&roster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_when_all_are_there),
        cmocka_unit_test(test_ranks_are_given_last),
        cmocka_unit_test(test_requests_go_before_the_unranked),
        cmocka_unit_test(test_refusals_say_why),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_lost_and_back),
        cmocka_unit_test(test_a_loss_frees_who_waits_for_its_word),
        cmocka_unit_test(test_confirmations_are_checked),
        cmocka_unit_test(test_contest_is_won_by_a_loss),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_before_it_forms_a_loss_is_no_epoch),
        cmocka_unit_test(test_scheduler_may_come_late),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_barrier_names_the_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
