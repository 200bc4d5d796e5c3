/* Barriers: who has arrived, and whether the others still can. Pure, like the roster that it reads
 * and whose acts (PASS, FAIL) it creates. */
#ifndef LIGI_BARRIER_RELEASE_H
#define LIGI_BARRIER_RELEASE_H

#include "group/roster/roster.h"

typedef struct ligi_waiter {
    uint64_t who, number; /* the number names the barrier within its member */
    uint32_t mask, flags;
    size_t seat;
} ligi_waiter;

typedef struct ligi_barriers { /* embedded; zero-initialised is valid and empty */
    ligi_waiter *waiters;
    size_t count, capacity;
    uint8_t *marks; /* of the seats, while one barrier is examined */
    size_t mark_capacity;
} ligi_barriers;

void ligi_barriers_fini(ligi_barriers *barriers);

/* A member waits for all of `mask`: who, number, mask and flags are given. Ignored for a peer
 * without a seat. */
lig_status ligi_barriers_arrive(ligi_barriers *barriers, ligi_roster *roster,
                                const ligi_waiter *waiter);
/* It stops waiting: FAIL with TIMEOUT, naming the missing members. */
lig_status ligi_barriers_cancel(ligi_barriers *barriers, ligi_roster *roster, uint64_t who,
                                uint64_t number);
/* The roster has changed. */
lig_status ligi_barriers_review(ligi_barriers *barriers, ligi_roster *roster);

#endif
