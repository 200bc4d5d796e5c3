/* A wake-up counter in memory shared by processes: waiters sleep until it rings. A zeroed one is
 * ready. A woken waiter checks its condition again; a ring that was lost with a killed process
 * delays waiters by 20 ms. */
#ifndef LIGI_BELL_H
#define LIGI_BELL_H

#include <stdatomic.h>
#include <stdint.h>

#define LIGI_BELL_ANYBODY UINT32_MAX

typedef struct ligi_bell {
    atomic_uint rung;    /* how often: a futex */
    atomic_uint waiters; /* too high after a waiter was killed */
} ligi_bell;

/* Read before checking the condition, for ligi_bell_wait. */
uint32_t ligi_bell_seen(const ligi_bell *bell);
/* Returns when it rang after `seen` and the ring was for one of the bits, or after the time. */
void ligi_bell_wait(ligi_bell *bell, uint32_t seen, uint32_t bits, int64_t timeout_ns);

void ligi_bell_ring_all(ligi_bell *bell);
void ligi_bell_ring_one(ligi_bell *bell);
/* The same in two parts: a waiter that read the bell before the strike does not sleep; sleeping
 * waiters are woken, up to `count` of those with one of the bits. */
void ligi_bell_strike(ligi_bell *bell);
void ligi_bell_wake(ligi_bell *bell, int count, uint32_t bits);

#endif
