#include "group/roster/roster.h"

#include "base/error.h"
#include "group/roster/member_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ligi_pending {
    uint64_t who;
    uint64_t number; /* of the probe sent to the holder of the seat; 0: any rank will do */
    int64_t asked_ns;
    ligi_join join;
};

/* --- seats ----------------------------------------------------------------------------------- */

size_t ligi_roster_index(uint32_t servers, uint32_t workers, ligi_role role, uint32_t rank)
{
    if (role == LIGI_SERVER && rank < servers)
        return rank;
    if (role == LIGI_WORKER && rank < workers)
        return (size_t)servers + rank;
    if (role == LIGI_SCHEDULER && rank == 0)
        return (size_t)servers + workers;
    return SIZE_MAX;
}

static ligi_seat *find_seat(const ligi_roster *roster, ligi_role role, uint32_t rank)
{
    size_t index = ligi_roster_index(roster->server_count, roster->worker_count, role, rank);
    return index == SIZE_MAX ? NULL : &roster->seats[index];
}

ligi_seat *ligi_roster_find(const ligi_roster *roster, uint64_t who)
{
    for (size_t i = 0; who != 0 && i < roster->seat_count; i++)
        if (roster->seats[i].who == who)
            return &roster->seats[i];
    return NULL;
}

size_t ligi_roster_others(const ligi_roster *roster, uint64_t who)
{
    size_t count = 0;
    for (size_t i = 0; i < roster->seat_count; i++)
        count += roster->seats[i].who != 0 && roster->seats[i].who != who;
    return count;
}

static lig_status check_counts(const ligi_group_options *options, uint32_t group_size)
{
    uint64_t all = (uint64_t)options->server_count + options->worker_count;
    if (all == 0)
        return lig_fail(LIG_E_INVALID, "a group needs at least one worker or server");
    if (all > LIGI_MEMBERS_MAX)
        return lig_fail(LIG_E_LIMIT, "a group of %llu members: the limit is %d",
                        (unsigned long long)all, LIGI_MEMBERS_MAX);
    if (options->server_count % group_size != 0 || options->worker_count % group_size != 0)
        return lig_fail(LIG_E_INVALID,
                        "%u workers and %u servers cannot be divided into groups of %u instances",
                        options->worker_count, options->server_count, group_size);
    return LIG_OK;
}

lig_status ligi_roster_init(ligi_roster *roster, const ligi_group_options *options)
{
    uint32_t group_size = options->group_size > 0 ? options->group_size : 1;
    LIG_TRY(check_counts(options, group_size));
    ligi_roster made = {
        .server_count = options->server_count,
        .worker_count = options->worker_count,
        .group_size = group_size,
        .liveness_ns = (int64_t)options->liveness_ms * 1000000,
        .tick_ns = INT64_MIN,
        .seat_count = (size_t)options->server_count + options->worker_count + 1,
    };
    LIG_TRY(ligi_calloc(&made.seats, made.seat_count, sizeof *made.seats, "a group's roster"));
    for (size_t i = 0; i < made.seat_count; i++) {
        int server = i < made.server_count, last = i + 1 == made.seat_count;
        made.seats[i].member.role = server ? LIGI_SERVER : last ? LIGI_SCHEDULER : LIGI_WORKER;
        made.seats[i].member.rank = (uint32_t)(server ? i : last ? 0 : i - made.server_count);
    }
    *roster = made;
    return LIG_OK;
}

void ligi_roster_fini(ligi_roster *roster)
{
    free(roster->seats);
    free(roster->pending);
    free(roster->acts);
    *roster = (ligi_roster){0};
}

/* --- acts ------------------------------------------------------------------------------------ */

lig_status ligi_roster_act(ligi_roster *roster, ligi_act_kind kind, uint64_t who, ligi_act **act)
{
    LIG_TRY(ligi_grow(&roster->acts, &roster->act_capacity, roster->act_count + 1,
                      sizeof *roster->acts, "a group's messages"));
    assert(roster->act_at <= roster->act_count);
    *act = &roster->acts[roster->act_count++];
    **act = (ligi_act){.kind = kind, .who = who, .epoch = roster->epoch};
    return LIG_OK;
}

int ligi_roster_next(ligi_roster *roster, ligi_act *act)
{
    assert(roster->act_at <= roster->act_count);
    if (roster->act_at == roster->act_count) {
        roster->act_at = roster->act_count = 0;
        return 0;
    }
    *act = roster->acts[roster->act_at++];
    return 1;
}

static lig_status say(ligi_roster *roster, ligi_act_kind kind, uint64_t who)
{
    ligi_act *act;
    return ligi_roster_act(roster, kind, who, &act);
}

static lig_status say_change(ligi_roster *roster, const ligi_seat *seat)
{
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_CHANGE, 0, &act));
    act->seat = (size_t)(seat - roster->seats);
    act->member = seat->member;
    snprintf(act->text, sizeof act->text, "%s", seat->why);
    return LIG_OK;
}

/* --- refusing -------------------------------------------------------------------------------- */

static lig_status refuse_counts(ligi_roster *roster, uint64_t who, const ligi_join *join)
{
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_REFUSE, who, &act));
    act->status = LIG_E_INVALID;
    snprintf(act->text, sizeof act->text,
             "a %s on %s (pid %u) was started for %u workers and %u servers in groups of %u, "
             "but this group has %u workers and %u servers in groups of %u",
             ligi_role_name(join->role), join->host, join->pid, join->worker_count,
             join->server_count, join->group_size, roster->worker_count, roster->server_count,
             roster->group_size);
    return LIG_OK;
}

static lig_status refuse_rank(ligi_roster *roster, uint64_t who, const ligi_join *join)
{
    uint32_t count = join->role == LIGI_SERVER   ? roster->server_count
                     : join->role == LIGI_WORKER ? roster->worker_count
                                                 : 1;
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_REFUSE, who, &act));
    act->status = LIG_E_INVALID;
    snprintf(act->text, sizeof act->text,
             "%s on %s (pid %u) requests rank %u, but this group has %u %ss (ranks start at 0)",
             ligi_role_name(join->role), join->host, join->pid, join->rank, count,
             ligi_role_name(join->role));
    return LIG_OK;
}

static lig_status refuse_taken(ligi_roster *roster, uint64_t who, const ligi_seat *seat)
{
    char text[160];
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_REFUSE, who, &act));
    act->status = LIG_E_EXISTS;
    snprintf(act->text, sizeof act->text,
             "the rank is taken: %s has it and is alive (give each %s a different rank)",
             ligi_member_text(&seat->member, text, sizeof text), ligi_role_name(seat->member.role));
    return LIG_OK;
}

static lig_status refuse_full(ligi_roster *roster, uint64_t who, ligi_role role)
{
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_REFUSE, who, &act));
    act->status = LIG_E_EXISTS;
    snprintf(act->text, sizeof act->text,
             "no free rank: all %ss of this group have joined (%u workers and %u servers)",
             ligi_role_name(role), roster->worker_count, roster->server_count);
    return LIG_OK;
}

/* --- taking a seat ---------------------------------------------------------------------------- */

/* A new member is released when all present members have confirmed its epoch. */
static lig_status release_ready(ligi_roster *roster)
{
    uint64_t lowest = UINT64_MAX;
    if (!roster->formed)
        return LIG_OK;
    for (size_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].who != 0 && roster->seats[i].confirmed < lowest)
            lowest = roster->seats[i].confirmed;
    for (size_t i = 0; i < roster->seat_count; i++) {
        ligi_seat *seat = &roster->seats[i];
        if (seat->who == 0 || seat->released || seat->since > lowest)
            continue;
        LIG_TRY(say(roster, LIGI_ACT_RELEASE, seat->who));
        assert(seat->member.state == LIGI_PRESENT && seat->confirmed >= seat->since);
        seat->released = 1;
    }
    return LIG_OK;
}

static lig_status tell_roster(ligi_roster *roster, ligi_seat *seat)
{
    assert(roster->formed && seat->who != 0 && !seat->released);
    seat->since = seat->told_epoch = roster->epoch;
    return say(roster, LIGI_ACT_ROSTER, seat->who);
}

static lig_status sit(ligi_roster *roster, ligi_seat *seat, uint64_t who, const ligi_join *join,
                      int64_t now_ns)
{
    /* A connection has one seat at most. */
    assert(seat->who == 0 && who != 0 && ligi_roster_find(roster, who) == NULL);
    seat->member.state = LIGI_PRESENT;
    seat->member.incarnation = ++seat->sat_count;
    seat->member.pid = join->pid;
    memcpy(seat->member.host, join->host, sizeof seat->member.host);
    memcpy(seat->blob, join->blob, join->blob_bytes);
    seat->blob_bytes = join->blob_bytes;
    seat->who = who;
    seat->released = 0;
    seat->told_epoch = seat->confirmed = 0;
    seat->heard_ns = now_ns;
    seat->why[0] = '\0';
    if (!roster->formed)
        return LIG_OK;
    roster->epoch++;
    LIG_TRY(say_change(roster, seat));
    return tell_roster(roster, seat);
}

static lig_status form(ligi_roster *roster)
{
    if (roster->formed)
        return LIG_OK;
    for (size_t i = 0; i + 1 < roster->seat_count; i++)
        if (roster->seats[i].who == 0)
            return LIG_OK;
    assert(roster->epoch == 0);
    roster->formed = 1;
    roster->epoch = 1;
    for (size_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].who != 0)
            LIG_TRY(tell_roster(roster, &roster->seats[i]));
    return LIG_OK;
}

/* --- joining --------------------------------------------------------------------------------- */

static lig_status wait_in(ligi_roster *roster, uint64_t who, const ligi_join *join, uint64_t number,
                          int64_t now_ns)
{
    LIG_TRY(ligi_grow(&roster->pending, &roster->pending_capacity, roster->pending_count + 1,
                      sizeof *roster->pending, "joining members"));
    assert(who != 0 && ligi_roster_find(roster, who) == NULL);
    roster->pending[roster->pending_count++] =
        (ligi_pending){.who = who, .number = number, .asked_ns = now_ns, .join = *join};
    return LIG_OK;
}

static void forget(ligi_roster *roster, size_t index)
{
    assert(index < roster->pending_count);
    memmove(&roster->pending[index], &roster->pending[index + 1],
            (roster->pending_count - index - 1) * sizeof *roster->pending);
    roster->pending_count--;
}

static size_t count_floating(const ligi_roster *roster, ligi_role role)
{
    size_t count = 0;
    for (size_t i = 0; i < roster->pending_count; i++)
        count += roster->pending[i].number == 0 && roster->pending[i].join.role == role;
    return count;
}

static size_t count_free(const ligi_roster *roster, ligi_role role)
{
    size_t count = 0;
    for (size_t i = 0; i < roster->seat_count; i++)
        count += roster->seats[i].member.role == role && roster->seats[i].who == 0;
    return count;
}

static ligi_seat *lowest_free(ligi_roster *roster, ligi_role role)
{
    for (size_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].member.role == role && roster->seats[i].who == 0)
            return &roster->seats[i];
    return NULL;
}

/* Those without a rank wait until those with one have taken theirs; in a running group they need
 * not wait. If there are too many, the last is refused. */
static lig_status seat_floating(ligi_roster *roster, ligi_role role)
{
    size_t floating = count_floating(roster, role), free_count = count_free(roster, role);
    for (size_t i = roster->pending_count; i-- > 0 && floating > free_count;) {
        if (roster->pending[i].number != 0 || roster->pending[i].join.role != role)
            continue;
        LIG_TRY(refuse_full(roster, roster->pending[i].who, role));
        forget(roster, i);
        floating--;
    }
    if (floating == 0 || (!roster->formed && floating < free_count))
        return LIG_OK;
    for (size_t i = 0; i < roster->pending_count;) {
        ligi_pending *one = &roster->pending[i];
        if (one->number != 0 || one->join.role != role) {
            i++;
            continue;
        }
        ligi_seat *seat = lowest_free(roster, role);
        assert(seat != NULL); /* surplus members were refused above */
        LIG_TRY(sit(roster, seat, one->who, &one->join, one->asked_ns));
        forget(roster, i);
    }
    return LIG_OK;
}

static lig_status settle(ligi_roster *roster)
{
    for (int role = 0; role < LIGI_ROLES; role++)
        LIG_TRY(seat_floating(roster, (ligi_role)role));
    LIG_TRY(form(roster));
    return release_ready(roster);
}

/* The seat is taken: its holder is probed, and the newcomer waits for the answer. */
static lig_status contest(ligi_roster *roster, ligi_seat *seat, uint64_t who, const ligi_join *join,
                          int64_t now_ns)
{
    ligi_act *act;
    assert(seat->who != 0 && seat->who != who);
    LIG_TRY(ligi_roster_act(roster, LIGI_ACT_PROBE, seat->who, &act));
    act->number = ++roster->probe_number;
    return wait_in(roster, who, join, act->number, now_ns);
}

lig_status ligi_roster_join(ligi_roster *roster, uint64_t who, const ligi_join *join,
                            int64_t now_ns)
{
    if (join->server_count != roster->server_count || join->worker_count != roster->worker_count ||
        join->group_size != roster->group_size)
        return refuse_counts(roster, who, join);
    ligi_join asked = *join;
    if (asked.role == LIGI_SCHEDULER)
        asked.rank = 0;
    if (asked.rank == LIGI_RANK_ANY) {
        LIG_TRY(wait_in(roster, who, &asked, 0, now_ns));
        return settle(roster);
    }
    ligi_seat *seat = find_seat(roster, asked.role, asked.rank);
    if (seat == NULL)
        return refuse_rank(roster, who, &asked);
    if (seat->who != 0)
        return contest(roster, seat, who, &asked, now_ns);
    LIG_TRY(sit(roster, seat, who, &asked, now_ns));
    return settle(roster);
}

/* The first to contest the seat gets it; the others now contest with that one. */
static lig_status hand_over(ligi_roster *roster, ligi_seat *seat)
{
    assert(seat->who == 0);
    for (size_t i = 0; i < roster->pending_count;) {
        ligi_pending one = roster->pending[i];
        if (one.number == 0 || find_seat(roster, one.join.role, one.join.rank) != seat) {
            i++;
            continue;
        }
        forget(roster, i);
        if (seat->who == 0)
            LIG_TRY(sit(roster, seat, one.who, &one.join, one.asked_ns));
        else
            LIG_TRY(refuse_taken(roster, one.who, seat));
    }
    return LIG_OK;
}

static lig_status vacate(ligi_roster *roster, ligi_seat *seat, ligi_member_state state,
                         const char *why)
{
    assert(seat->who != 0 && seat->member.state == LIGI_PRESENT);
    seat->who = 0;
    seat->released = 0;
    seat->told_epoch = 0;
    seat->member.state = roster->formed ? state : LIGI_AWAITED;
    snprintf(seat->why, sizeof seat->why, "%s", why);
    if (roster->formed) {
        roster->epoch++;
        LIG_TRY(say_change(roster, seat));
    } else {
        seat->member.incarnation = 0;
        seat->blob_bytes = 0;
    }
    LIG_TRY(hand_over(roster, seat));
    return settle(roster);
}

lig_status ligi_roster_lose(ligi_roster *roster, ligi_seat *seat, const char *why)
{
    return vacate(roster, seat, LIGI_LOST, why);
}

lig_status ligi_roster_end(ligi_roster *roster, uint64_t who, const char *why)
{
    for (size_t i = 0; i < roster->pending_count; i++)
        if (roster->pending[i].who == who) {
            forget(roster, i);
            return settle(roster);
        }
    ligi_seat *seat = ligi_roster_find(roster, who);
    return seat == NULL ? LIG_OK : ligi_roster_lose(roster, seat, why);
}

lig_status ligi_roster_leave(ligi_roster *roster, uint64_t who)
{
    ligi_seat *seat = ligi_roster_find(roster, who);
    return seat == NULL ? LIG_OK : vacate(roster, seat, LIGI_LEFT, "it has stopped");
}

lig_status ligi_roster_confirm(ligi_roster *roster, uint64_t who, uint64_t epoch)
{
    ligi_seat *seat = ligi_roster_find(roster, who);
    if (seat == NULL || epoch > roster->epoch || epoch <= seat->confirmed)
        return LIG_OK;      /* of an expelled or unknown member */
    assert(roster->formed); /* before that the epoch is 0 */
    seat->confirmed = epoch;
    return release_ready(roster);
}

lig_status ligi_roster_answer(ligi_roster *roster, uint64_t who, uint64_t number)
{
    ligi_seat *seat = ligi_roster_find(roster, who);
    for (size_t i = 0; seat != NULL && i < roster->pending_count; i++) {
        ligi_pending one = roster->pending[i];
        if (one.number == number && number != 0 &&
            find_seat(roster, one.join.role, one.join.rank) == seat) {
            forget(roster, i);
            return refuse_taken(roster, one.who, seat);
        }
    }
    return LIG_OK;
}

/* --- texts ----------------------------------------------------------------------------------- */

static size_t awaited_count(const ligi_roster *roster, ligi_role role)
{
    return count_free(roster, role) - count_floating(roster, role);
}

/* While ranks are still to be assigned only the number of missing members is known. */
static void name_awaited(const ligi_roster *roster, ligi_role role, char *text, size_t text_bytes)
{
    size_t used = strlen(text), count = awaited_count(roster, role);
    if (count > 0 && count_floating(roster, role) > 0) {
        snprintf(text + used, text_bytes - used, "%s%zu more %s%s", used > 0 ? ", " : "", count,
                 ligi_role_name(role), count > 1 ? "s" : "");
        return;
    }
    size_t named = 0;
    for (size_t i = 0; i < roster->seat_count; i++) {
        const ligi_seat *seat = &roster->seats[i];
        if (seat->member.role != role || seat->who != 0)
            continue;
        used = strlen(text);
        if (++named > 8) {
            snprintf(text + used, text_bytes - used, " and %zu more %ss", count - 8,
                     ligi_role_name(role));
            return;
        }
        snprintf(text + used, text_bytes - used, "%s%s %u", used > 0 ? ", " : "",
                 ligi_role_name(role), seat->member.rank);
    }
}

void ligi_roster_awaited(const ligi_roster *roster, char *text, size_t text_bytes)
{
    size_t all = roster->seat_count - 1;
    size_t missing = awaited_count(roster, LIGI_SERVER) + awaited_count(roster, LIGI_WORKER);
    text[0] = '\0';
    if (roster->formed || missing == 0)
        return;
    name_awaited(roster, LIGI_SERVER, text, text_bytes);
    name_awaited(roster, LIGI_WORKER, text, text_bytes);
    size_t used = strlen(text);
    snprintf(text + used, text_bytes - used, " (%zu of %zu have joined)", all - missing, all);
}
