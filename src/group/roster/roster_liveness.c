#include "group/roster/roster_liveness.h"

#include "group/roster/local_pause.h"

#include <assert.h>
#include <stdio.h>

/* Its last message may predate a stop of this process: see the tick. */
void ligi_roster_hear(ligi_roster *roster, uint64_t who, int64_t at_ns)
{
    ligi_seat *seat = ligi_roster_find(roster, who);
    assert(seat == NULL || seat->member.state == LIGI_PRESENT);
    if (seat != NULL && seat->heard_ns < at_ns)
        seat->heard_ns = at_ns;
}

/* The timeout of a contested holder is that of any other member: from its last message, not from
 * the probe. */
lig_status ligi_roster_tick(ligi_roster *roster, int64_t now_ns)
{
    int64_t before = roster->tick_ns;
    assert(now_ns >= before); /* of a monotonic clock */
    roster->tick_ns = now_ns;
    int frozen = ligi_pause_detect(before, now_ns, roster->liveness_ns);
    for (size_t i = 0; i < roster->seat_count; i++) {
        ligi_seat *seat = &roster->seats[i];
        if (frozen && seat->heard_ns < now_ns)
            seat->heard_ns = now_ns;
        if (seat->who == 0 || now_ns - seat->heard_ns <= roster->liveness_ns)
            continue;
        char why[128];
        ligi_act *act;
        snprintf(why, sizeof why, "it was silent for %lld ms",
                 (long long)((now_ns - seat->heard_ns) / 1000000));
        LIG_TRY(ligi_roster_act(roster, LIGI_ACT_EXPEL, seat->who, &act));
        snprintf(act->text, sizeof act->text, "%s (liveness_ms=%lld)", why,
                 (long long)(roster->liveness_ns / 1000000));
        LIG_TRY(ligi_roster_lose(roster, seat, why));
    }
    return LIG_OK;
}
