/* A bell in memory that processes share: who waits for it sleeps until it rings. A zeroed one is
 * ready. Who is woken looks again; a ring that was lost to a killed process costs those who wait
 * 20 ms. */
#ifndef LIGI_BELL_H
#define LIGI_BELL_H

#include <stdatomic.h>
#include <stdint.h>

#define LIGI_BELL_ANYBODY UINT32_MAX

typedef struct ligi_bell {
    atomic_uint rung;    /* how often: a futex */
    atomic_uint waiters; /* too many after one was killed */
} ligi_bell;

/* Taken before a look at what the bell is about, for ligi_bell_wait. */
uint32_t ligi_bell_seen(const ligi_bell *bell);
/* Returns when it rang after `seen` and the ring was for one of the bits, or after the time. */
void ligi_bell_wait(ligi_bell *bell, uint32_t seen, uint32_t bits, int64_t timeout_ns);

void ligi_bell_ring_all(ligi_bell *bell);
void ligi_bell_ring_one(ligi_bell *bell);
/* The same in two parts: who has looked before the strike does not go to sleep; who sleeps is
 * woken, up to `count` of those with one of the bits. */
void ligi_bell_strike(ligi_bell *bell);
void ligi_bell_wake(ligi_bell *bell, int count, uint32_t bits);

#endif
