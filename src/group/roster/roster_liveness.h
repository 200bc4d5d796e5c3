/* When a member is declared lost: it has been silent for longer than liveness_ms. Pure, like the
 * roster. (A member whose connection has ended is lost at once: ligi_roster_end.) */
#ifndef LIGI_ROSTER_LIVENESS_H
#define LIGI_ROSTER_LIVENESS_H

#include "group/roster/roster.h"

/* It sent something at that time: it was alive. */
void ligi_roster_hear(ligi_roster *roster, uint64_t who, int64_t at_ns);
/* Time passes: silent members are lost. A gap of half of liveness since the last tick means that
 * this process itself was stopped: all timers start again then. */
lig_status ligi_roster_tick(ligi_roster *roster, int64_t now_ns);

#endif
