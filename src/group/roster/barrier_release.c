#include "group/roster/barrier_release.h"

#include "base/error.h"
#include "group/roster/member_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABSENT = 0, HERE = 1, ARRIVED = 2 };

typedef struct outlook { /* for one barrier */
    size_t awaited, gone;
    char awaited_text[LIGI_ACT_TEXT_BYTES / 2], gone_text[LIGI_ACT_TEXT_BYTES / 2];
} outlook;

void ligi_barriers_fini(ligi_barriers *barriers)
{
    free(barriers->waiters);
    free(barriers->marks);
    *barriers = (ligi_barriers){0};
}

static int same_barrier(const ligi_waiter *a, const ligi_waiter *b)
{
    return a->mask == b->mask && a->flags == b->flags;
}

static uint32_t stage_of(const ligi_waiter *waiter)
{
    return waiter->flags / LIGI_BARRIER_STAGE(1);
}

/* Waits at a barrier of that kind, but of a later stage. */
static int is_past(const ligi_waiter *waiter, const ligi_waiter *barrier)
{
    return waiter->mask == barrier->mask && stage_of(waiter) > stage_of(barrier);
}

static lig_status mark(ligi_barriers *barriers, const ligi_roster *roster,
                       const ligi_waiter *barrier)
{
    LIG_TRY(ligi_grow(&barriers->marks, &barriers->mark_capacity, roster->seat_count, 1,
                      "the seats of a barrier"));
    for (size_t i = 0; i < roster->seat_count; i++)
        barriers->marks[i] = roster->seats[i].who != 0 ? HERE : ABSENT;
    for (size_t i = 0; i < barriers->count; i++)
        if (same_barrier(&barriers->waiters[i], barrier) ||
            is_past(&barriers->waiters[i], barrier)) {
            assert(barriers->waiters[i].seat < roster->seat_count);
            barriers->marks[barriers->waiters[i].seat] = ARRIVED;
        }
    return LIG_OK;
}

static void name(char *text, size_t text_bytes, size_t before, const ligi_seat *seat, int reason)
{
    size_t used = strlen(text);
    const char *comma = before > 0 ? ", " : "";
    if (before == 8)
        snprintf(text + used, text_bytes - used, ", ...");
    if (before >= 8)
        return;
    snprintf(text + used, text_bytes - used, "%s%s %u%s%s%s", comma,
             ligi_role_name(seat->member.role), seat->member.rank, reason ? " (" : "",
             reason ? seat->why : "", reason ? ")" : "");
}

static lig_status look(ligi_barriers *barriers, const ligi_roster *roster,
                       const ligi_waiter *barrier, outlook *view)
{
    *view = (outlook){0};
    LIG_TRY(mark(barriers, roster, barrier));
    for (size_t i = 0; i < roster->seat_count; i++) {
        const ligi_seat *seat = &roster->seats[i];
        if ((barrier->mask & (1u << seat->member.role)) == 0 ||
            (seat->member.role == LIGI_SCHEDULER && seat->sat_count == 0))
            continue;
        if (barriers->marks[i] == HERE)
            name(view->awaited_text, sizeof view->awaited_text, view->awaited++, seat, 0);
        else if (barriers->marks[i] == ABSENT)
            name(view->gone_text, sizeof view->gone_text, view->gone++, seat, 1);
    }
    return LIG_OK;
}

static lig_status settle(ligi_roster *roster, const ligi_waiter *waiter, lig_status status,
                         const char *text)
{
    ligi_act *act;
    LIG_TRY(ligi_roster_act(roster, status == LIG_OK ? LIGI_ACT_PASS : LIGI_ACT_FAIL, waiter->who,
                            &act));
    act->number = waiter->number;
    act->status = status;
    snprintf(act->text, sizeof act->text, "%s", text);
    return LIG_OK;
}

/* The number of members that are past a barrier of stage 0 and will not reach it. */
static size_t name_past(const ligi_barriers *barriers, const ligi_roster *roster,
                        const ligi_waiter *barrier, char *text, size_t text_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < barriers->count && stage_of(barrier) == 0; i++)
        if (is_past(&barriers->waiters[i], barrier))
            name(text, text_bytes, count++, &roster->seats[barriers->waiters[i].seat], 0);
    return count;
}

/* The outcome of a barrier: BUSY while it is incomplete. */
static lig_status judge(ligi_barriers *barriers, const ligi_roster *roster,
                        const ligi_waiter *barrier, lig_status *status,
                        char text[LIGI_ACT_TEXT_BYTES])
{
    outlook view;
    char names[LIGI_ACT_TEXT_BYTES / 2] = "";
    size_t past = name_past(barriers, roster, barrier, names, sizeof names);
    LIG_TRY(look(barriers, roster, barrier, &view));
    *status = view.awaited == 0 ? LIG_OK : LIG_E_BUSY;
    text[0] = '\0';
    if (view.gone > 0) {
        *status = LIG_E_PEER;
        snprintf(text, LIGI_ACT_TEXT_BYTES, "barrier cannot complete: %s %s missing",
                 view.gone_text, view.gone > 1 ? "are" : "is");
    } else if (past > 0) {
        *status = LIG_E_INVALID;
        snprintf(text, LIGI_ACT_TEXT_BYTES, "barrier cannot complete: %s %s already at a later one",
                 names, past > 1 ? "are" : "is");
    }
    return LIG_OK;
}

/* Ends the barrier of waiter `index` if it is complete or cannot be completed. */
static lig_status decide(ligi_barriers *barriers, ligi_roster *roster, size_t index, int *ended)
{
    ligi_waiter barrier = barriers->waiters[index];
    char text[LIGI_ACT_TEXT_BYTES];
    lig_status status;
    LIG_TRY(judge(barriers, roster, &barrier, &status, text));
    *ended = status != LIG_E_BUSY;
    if (!*ended)
        return LIG_OK;
    size_t kept = 0;
    for (size_t i = 0; i < barriers->count; i++) {
        if (!same_barrier(&barriers->waiters[i], &barrier)) {
            barriers->waiters[kept++] = barriers->waiters[i];
            continue;
        }
        LIG_TRY(settle(roster, &barriers->waiters[i], status, text));
    }
    assert(kept < barriers->count); /* at least the one that was asked about */
    barriers->count = kept;
    return LIG_OK;
}

lig_status ligi_barriers_arrive(ligi_barriers *barriers, ligi_roster *roster,
                                const ligi_waiter *waiter)
{
    ligi_seat *seat = ligi_roster_find(roster, waiter->who);
    int ended;
    if (seat == NULL)
        return LIG_OK;
    for (size_t i = 0; i < barriers->count; i++)
        if (barriers->waiters[i].who == waiter->who && same_barrier(&barriers->waiters[i], waiter))
            return settle(roster, waiter, LIG_E_BUSY,
                          "this process is already waiting at that barrier");
    if ((waiter->mask & (1u << seat->member.role)) == 0 || waiter->mask >= 1u << LIGI_ROLES ||
        waiter->flags >= LIGI_BARRIER_STAGE(4) || waiter->flags % LIGI_BARRIER_STAGE(1) != 0)
        return settle(roster, waiter, LIG_E_INVALID,
                      "the mask of the barrier does not include the role of this process");
    LIG_TRY(ligi_grow(&barriers->waiters, &barriers->capacity, barriers->count + 1,
                      sizeof *barriers->waiters, "the members waiting at barriers"));
    barriers->waiters[barriers->count] = *waiter;
    barriers->waiters[barriers->count++].seat = (size_t)(seat - roster->seats);
    assert(seat->member.state == LIGI_PRESENT);
    if (stage_of(waiter) > 0) /* it may be the last that an earlier stage waits for */
        return ligi_barriers_review(barriers, roster);
    return decide(barriers, roster, barriers->count - 1, &ended);
}

lig_status ligi_barriers_cancel(ligi_barriers *barriers, ligi_roster *roster, uint64_t who,
                                uint64_t number)
{
    for (size_t i = 0; i < barriers->count; i++) {
        ligi_waiter waiter = barriers->waiters[i];
        if (waiter.who != who || waiter.number != number)
            continue;
        outlook view;
        char text[LIGI_ACT_TEXT_BYTES];
        LIG_TRY(look(barriers, roster, &waiter, &view));
        snprintf(text, sizeof text, "%s %s not arrived at the barrier", view.awaited_text,
                 view.awaited > 1 ? "have" : "has");
        assert(view.awaited > 0); /* a complete barrier has been passed */
        memmove(&barriers->waiters[i], &barriers->waiters[i + 1],
                (barriers->count - i - 1) * sizeof *barriers->waiters);
        barriers->count--;
        return settle(roster, &waiter, LIG_E_TIMEOUT, text);
    }
    return LIG_OK; /* it is settled, and the answer has been sent */
}

static int first_of(const ligi_barriers *barriers, size_t index)
{
    size_t i = 0;
    while (!same_barrier(&barriers->waiters[i], &barriers->waiters[index]))
        i++;
    return i == index;
}

lig_status ligi_barriers_review(ligi_barriers *barriers, ligi_roster *roster)
{
    size_t kept = 0;
    for (size_t i = 0; i < barriers->count; i++) {
        assert(barriers->waiters[i].seat < roster->seat_count);
        if (roster->seats[barriers->waiters[i].seat].who == barriers->waiters[i].who)
            barriers->waiters[kept++] = barriers->waiters[i];
    }
    barriers->count = kept;
    for (size_t i = 0; i < barriers->count;) {
        int ended = 0;
        if (first_of(barriers, i))
            LIG_TRY(decide(barriers, roster, i, &ended));
        i = ended ? 0 : i + 1;
    }
    return LIG_OK;
}
