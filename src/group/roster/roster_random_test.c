/* Random histories of the roster and its barriers, against a twin that keeps a list of all who ever
 * came and looks everything up in it, and with simulated members that hear and confirm late. */
#include "group/roster/barrier_release.h"
#include "group/roster/roster_liveness.h"

#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>

#define MS INT64_C(1000000)
#define LIVENESS (100 * MS)
enum { RECORDS = 256, SEATS = 16, INBOX = 512, STEPS = 150, HISTORIES = 400 };

typedef enum standing { WAITS, SITS, REFUSED, OUT } standing;

typedef struct record {
    ligi_role role;
    uint32_t rank;
    standing now, seen; /* by the twin; by the acts */
    int seat, expelled, contest;
    int64_t heard_ns, asked_ns;
    /* the simulated member */
    struct {
        uint64_t roster, change, release;
    } inbox[INBOX]; /* epochs; 0: not that kind */
    size_t in, out;
    uint64_t epoch, since;
    int released;
    /* its barrier */
    uint32_t mask;
    int barrier; /* 0 none, 1 waits, 2 passed, 3 failed */
} record;

typedef struct twin {
    ligi_roster roster;
    ligi_barriers barriers;
    record records[RECORDS + 1]; /* who is the index */
    size_t count;
    int seat_count, formed;
    int state[SEATS], incarnation[SEATS];
    uint64_t epoch;
    int64_t now_ns, tick_ns;
    uint64_t random;
} twin;

static uint32_t roll(twin *t, uint32_t below)
{
    t->random = t->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(t->random >> 33) % below;
}

static int seat_of(const twin *t, ligi_role role, uint32_t rank)
{
    return role == LIGI_SERVER   ? (int)rank
           : role == LIGI_WORKER ? (int)(t->roster.server_count + rank)
                                 : t->seat_count - 1;
}

static ligi_role role_of(const twin *t, int seat)
{
    return seat < (int)t->roster.server_count ? LIGI_SERVER
           : seat + 1 < t->seat_count         ? LIGI_WORKER
                                              : LIGI_SCHEDULER;
}

static record *holder(twin *t, int seat)
{
    for (size_t i = 1; i <= t->count; i++)
        if (t->records[i].now == SITS && t->records[i].seat == seat)
            return &t->records[i];
    return NULL;
}

/* --- the rules, slowly ----------------------------------------------------------------------- */

static void twin_sit(twin *t, record *one, int seat)
{
    one->now = SITS;
    one->seat = seat;
    one->heard_ns = one->asked_ns;
    t->state[seat] = LIGI_PRESENT;
    t->incarnation[seat]++;
    if (t->formed)
        one->since = ++t->epoch;
}

static void twin_settle(twin *t)
{
    for (int role = 0; role < LIGI_ROLES; role++) {
        size_t floating = 0, open = 0;
        for (size_t i = 1; i <= t->count; i++)
            floating += t->records[i].now == WAITS && !t->records[i].contest &&
                        t->records[i].role == (ligi_role)role;
        for (int s = 0; s < t->seat_count; s++)
            open += role_of(t, s) == (ligi_role)role && holder(t, s) == NULL;
        for (size_t i = t->count; i >= 1 && floating > open; i--) {
            record *one = &t->records[i];
            if (one->now == WAITS && !one->contest && one->role == (ligi_role)role) {
                one->now = REFUSED;
                floating--;
            }
        }
        if (!t->formed && floating < open)
            continue;
        for (size_t i = 1; i <= t->count; i++) {
            record *one = &t->records[i];
            int s = 0;
            if (one->now != WAITS || one->contest || one->role != (ligi_role)role)
                continue;
            while (role_of(t, s) != (ligi_role)role || holder(t, s) != NULL)
                s++;
            twin_sit(t, one, s);
        }
    }
    for (int s = 0; s + 1 < t->seat_count; s++)
        if (t->formed || holder(t, s) == NULL)
            return;
    t->formed = 1;
    t->epoch = 1;
    for (size_t i = 1; i <= t->count; i++)
        t->records[i].since = 1;
}

static void twin_vacate(twin *t, record *one, int state)
{
    int seat = one->seat;
    one->now = OUT;
    t->state[seat] = t->formed ? state : LIGI_AWAITED;
    t->epoch += t->formed != 0;
    for (size_t i = 1; i <= t->count; i++) {
        record *other = &t->records[i];
        if (other->now != WAITS || !other->contest || seat_of(t, other->role, other->rank) != seat)
            continue;
        if (holder(t, seat) == NULL)
            twin_sit(t, other, seat);
        else
            other->now = REFUSED;
    }
    twin_settle(t);
}

/* --- what the acts say ----------------------------------------------------------------------- */

static void deliver(record *one, uint64_t roster, uint64_t change, uint64_t release)
{
    assert_true(one->in - one->out < INBOX);
    one->inbox[one->in % INBOX].roster = roster;
    one->inbox[one->in % INBOX].change = change;
    one->inbox[one->in++ % INBOX].release = release;
}

/* Who is let go is known to everybody who is there. */
static void check_release(twin *t, record *one)
{
    for (int s = 0; s < t->seat_count; s++) {
        record *other = holder(t, s);
        if (other != NULL)
            assert_true(other->epoch >= one->since);
    }
}

static void follow_acts(twin *t)
{
    ligi_act act;
    while (ligi_roster_next(&t->roster, &act)) {
        record *one = &t->records[act.who];
        switch (act.kind) {
        case LIGI_ACT_REFUSE: one->seen = REFUSED; break;
        case LIGI_ACT_ROSTER:
            assert_int_equal(one->seen, WAITS);
            one->seen = SITS;
            deliver(one, act.epoch, 0, 0);
            break;
        case LIGI_ACT_CHANGE:
            for (size_t i = 0; i < t->roster.seat_count; i++) {
                ligi_seat *seat = &t->roster.seats[i];
                if (seat->who != 0 && seat->told_epoch != 0 && seat->told_epoch < act.epoch)
                    deliver(&t->records[seat->who], 0, act.epoch, 0);
            }
            break;
        case LIGI_ACT_RELEASE:
            check_release(t, one);
            deliver(one, 0, 0, 1);
            break;
        case LIGI_ACT_EXPEL: one->expelled = 2; break;
        case LIGI_ACT_PASS:
        case LIGI_ACT_FAIL:
            assert_int_equal(one->barrier, 1);
            one->barrier = act.kind == LIGI_ACT_PASS ? 2 : 3;
            break;
        case LIGI_ACT_PROBE: assert_int_equal(one->now, SITS); break;
        }
    }
}

/* --- barriers, slowly ------------------------------------------------------------------------ */

/* 1 goes on, 2 is complete, 3 cannot be. */
static int twin_barrier(twin *t, uint32_t mask)
{
    int answer = 2;
    for (int s = 0; s < t->seat_count; s++) {
        if (!(mask & (1u << role_of(t, s))) ||
            (role_of(t, s) == LIGI_SCHEDULER && t->incarnation[s] == 0))
            continue;
        const record *one = holder(t, s);
        if (one == NULL)
            return 3;
        if (one->barrier == 0 || one->mask != mask)
            answer = 1;
    }
    return answer;
}

static void check_barriers(twin *t)
{
    for (size_t i = 1; i <= t->count; i++) {
        record *one = &t->records[i];
        if (one->now == SITS && one->barrier >= 1)
            assert_int_equal(one->barrier, twin_barrier(t, one->mask));
    }
    for (size_t i = 1; i <= t->count; i++)
        if (t->records[i].barrier > 1 || t->records[i].now != SITS)
            t->records[i].barrier = 0;
}

static void check(twin *t)
{
    assert_ok(ligi_barriers_review(&t->barriers, &t->roster));
    follow_acts(t);
    assert_int_equal(t->roster.formed, t->formed);
    assert_int_equal(t->roster.epoch, t->epoch);
    for (int s = 0; s < t->seat_count; s++) {
        ligi_seat *seat = &t->roster.seats[s];
        record *one = holder(t, s);
        assert_int_equal(seat->who, one == NULL ? 0 : one - t->records);
        assert_int_equal(seat->member.state, t->state[s]);
        if (seat->member.incarnation != 0)
            assert_int_equal(seat->member.incarnation, t->incarnation[s]);
    }
    for (size_t i = 1; i <= t->count; i++) {
        record *one = &t->records[i];
        assert_int_equal(one->seen == REFUSED, one->now == REFUSED);
        assert_int_equal(one->expelled, one->expelled ? 2 : 0);
        if (one->now == SITS && t->formed)
            assert_int_equal(one->seen, SITS);
    }
    check_barriers(t);
}

/* --- what happens ---------------------------------------------------------------------------- */

static void do_join(twin *t)
{
    if (t->count == RECORDS)
        return;
    record *one = &t->records[++t->count];
    *one = (record){.role = (ligi_role)(roll(t, 8) == 0 ? 2 : roll(t, 2)), .asked_ns = t->now_ns};
    uint32_t counts[] = {t->roster.server_count, t->roster.worker_count, 1};
    if (counts[one->role] == 0)
        one->role = LIGI_WORKER;
    one->rank = roll(t, 4) == 0 ? LIGI_RANK_ANY : roll(t, counts[one->role]);
    if (one->role == LIGI_SCHEDULER)
        one->rank = 0;
    ligi_join join = {.role = one->role,
                      .rank = one->rank,
                      .server_count = t->roster.server_count,
                      .worker_count = t->roster.worker_count,
                      .group_size = t->roster.group_size};
    assert_ok(ligi_roster_join(&t->roster, t->count, &join, t->now_ns));
    if (one->rank != LIGI_RANK_ANY) {
        int seat = seat_of(t, one->role, one->rank);
        one->contest = holder(t, seat) != NULL;
        if (!one->contest)
            twin_sit(t, one, seat);
    }
    twin_settle(t);
}

static record *pick(twin *t, standing now)
{
    if (t->count == 0)
        return NULL;
    for (size_t i = 0, at = roll(t, (uint32_t)t->count); i < t->count; i++)
        if (t->records[1 + (at + i) % t->count].now == now)
            return &t->records[1 + (at + i) % t->count];
    return NULL;
}

static void do_end(twin *t)
{
    record *one = pick(t, roll(t, 4) == 0 ? WAITS : SITS);
    if (one == NULL)
        return;
    uint64_t who = (uint64_t)(one - t->records);
    if (one->now == WAITS) {
        assert_ok(ligi_roster_end(&t->roster, who, "gone"));
        one->now = OUT;
        twin_settle(t);
        return;
    }
    int leaves = (int)roll(t, 2);
    assert_ok(leaves ? ligi_roster_leave(&t->roster, who)
                     : ligi_roster_end(&t->roster, who, "gone"));
    twin_vacate(t, one, leaves ? LIGI_LEFT : LIGI_LOST);
}

/* One message reaches a member, which confirms what it was told. */
static void hear_one(twin *t, record *one)
{
    uint64_t who = (uint64_t)(one - t->records);
    size_t at = one->out++ % INBOX;
    if (one->inbox[at].release) {
        one->released = 1;
        return;
    }
    if (one->inbox[at].change)
        assert_int_equal(one->inbox[at].change, one->epoch + 1);
    one->epoch = one->inbox[at].roster ? one->inbox[at].roster : one->inbox[at].change;
    assert_ok(ligi_roster_confirm(&t->roster, who, one->epoch));
}

static void do_hear(twin *t)
{
    for (int i = 0; i < 4; i++) {
        record *one = pick(t, SITS);
        if (one != NULL && one->out < one->in)
            hear_one(t, one);
    }
}

static void do_answer(twin *t)
{
    for (size_t i = 1; i <= t->count; i++) {
        record *one = &t->records[i];
        if (one->now != WAITS || !one->contest)
            continue;
        record *who = holder(t, seat_of(t, one->role, one->rank));
        /* Numbers count contests, so all of them are tried; a wrong one does nothing. */
        for (uint64_t n = 1; n <= t->roster.probe_number && one->seen == WAITS; n++) {
            assert_ok(ligi_roster_answer(&t->roster, (uint64_t)(who - t->records), n));
            follow_acts(t);
        }
        for (size_t j = 1; j <= t->count; j++)
            if (t->records[j].seen == REFUSED)
                t->records[j].now = REFUSED;
        assert_int_equal(one->now, REFUSED);
        return;
    }
}

static void do_time(twin *t)
{
    t->now_ns += (int64_t)(roll(t, 12) == 0 ? 60 : 1 + roll(t, 40)) * MS;
    for (size_t i = 1; i <= t->count; i++)
        if (t->records[i].now == SITS && roll(t, 4) != 0) {
            t->records[i].heard_ns = t->now_ns;
            ligi_roster_hear(&t->roster, i, t->now_ns);
        }
    assert_ok(ligi_roster_tick(&t->roster, t->now_ns));
    int frozen = t->tick_ns == INT64_MIN || t->now_ns - t->tick_ns > LIVENESS / 2;
    t->tick_ns = t->now_ns;
    for (int s = 0; s < t->seat_count; s++) {
        record *one = holder(t, s);
        if (one != NULL && frozen)
            one->heard_ns = t->now_ns;
        if (one == NULL || t->now_ns - one->heard_ns <= LIVENESS)
            continue;
        one->expelled = 1;
        twin_vacate(t, one, LIGI_LOST);
    }
    follow_acts(t);
}

static void do_barrier(twin *t)
{
    record *one = pick(t, SITS);
    if (one == NULL || !t->formed || one->barrier != 0)
        return;
    one->mask = (1u << role_of(t, one->seat)) | roll(t, 8);
    one->barrier = 1;
    ligi_waiter waiter = {.who = (uint64_t)(one - t->records), .number = 5, .mask = one->mask};
    assert_ok(ligi_barriers_arrive(&t->barriers, &t->roster, &waiter));
}

static void do_cancel(twin *t)
{
    record *one = pick(t, SITS);
    if (one == NULL || one->barrier != 1)
        return;
    assert_ok(ligi_barriers_cancel(&t->barriers, &t->roster, (uint64_t)(one - t->records), 5));
    follow_acts(t);
    assert_int_equal(one->barrier, 3);
    one->barrier = 0;
}

/* When everything has been heard, everybody knows the same and nobody waits to be let go. */
static void check_quiet(twin *t)
{
    for (int round = 0; round < 4; round++)
        for (size_t i = 1; i <= t->count; i++)
            while (t->records[i].now == SITS && t->records[i].out < t->records[i].in) {
                hear_one(t, &t->records[i]);
                check(t);
            }
    for (int s = 0; s < t->seat_count && t->formed; s++) {
        record *one = holder(t, s);
        if (one != NULL) {
            assert_int_equal(one->epoch, t->epoch);
            assert_int_equal(one->released, 1);
        }
    }
}

static void play(twin *t, uint64_t seed)
{
    static void (*const deeds[])(twin *) = {do_join, do_join,   do_end,     do_hear,
                                            do_hear, do_answer, do_barrier, do_barrier,
                                            do_time, do_cancel, do_hear};
    *t = (twin){.random = seed * 77 + 1, .tick_ns = INT64_MIN};
    uint32_t size = 1 + roll(t, 2);
    ligi_group_options options = {.server_count = size * roll(t, 3),
                                  .worker_count = size * (1 + roll(t, 3)),
                                  .group_size = size,
                                  .liveness_ms = 100};
    assert_ok(ligi_roster_init(&t->roster, &options));
    t->seat_count = (int)t->roster.seat_count;
    for (int i = 0; i < STEPS; i++) {
        deeds[roll(t, sizeof deeds / sizeof deeds[0])](t);
        check(t);
    }
    check_quiet(t);
    ligi_barriers_fini(&t->barriers);
    ligi_roster_fini(&t->roster);
}

static void test_random_histories(void **state)
{
    (void)state;
    twin *t = malloc(sizeof *t);
    int formed = 0;
    assert_non_null(t);
    for (uint64_t seed = 0; seed < HISTORIES; seed++) {
        play(t, seed);
        formed += t->formed;
    }
    assert_true(formed > HISTORIES / 2);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_histories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
