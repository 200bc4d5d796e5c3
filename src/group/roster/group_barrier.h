/* Barriers: who has arrived, and whether the rest can still come. Pure, like the roster it looks
 * at, whose acts (PASS, FAIL) it makes. */
#ifndef LIGI_GROUP_BARRIER_H
#define LIGI_GROUP_BARRIER_H

#include "group/roster/roster.h"

typedef struct ligi_waiter {
    uint64_t who, number; /* the number names the barrier within its member */
    uint32_t mask, flags;
    size_t seat;
} ligi_waiter;

typedef struct ligi_barriers { /* embedded; zero-initialised is valid and empty */
    ligi_waiter *waiters;
    size_t count, capacity;
    uint8_t *marks; /* of the seats, while one barrier is looked at */
    size_t mark_capacity;
} ligi_barriers;

void ligi_barriers_fini(ligi_barriers *barriers);

/* A member waits for all of `mask`: who, number, mask and flags are given. Of one that sits nowhere
 * nothing is heard. */
lig_status ligi_barriers_arrive(ligi_barriers *barriers, ligi_roster *roster,
                                const ligi_waiter *waiter);
/* It waits no longer: FAIL with TIMEOUT, naming who has not arrived. */
lig_status ligi_barriers_cancel(ligi_barriers *barriers, ligi_roster *roster, uint64_t who,
                                uint64_t number);
/* The roster has changed. */
lig_status ligi_barriers_review(ligi_barriers *barriers, ligi_roster *roster);

#endif
