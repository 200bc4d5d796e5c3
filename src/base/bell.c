#include "base/bell.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS INT64_C(20000000)

uint32_t ligi_bell_seen(const ligi_bell *bell)
{
    return atomic_load(&bell->rung);
}

void ligi_bell_wait(ligi_bell *bell, uint32_t seen, uint32_t bits, int64_t timeout_ns)
{
    if (timeout_ns <= 0)
        return;
    struct timespec end = ligi_deadline(timeout_ns < SLICE_NS ? timeout_ns : SLICE_NS);
    atomic_fetch_add(&bell->waiters, 1);
    syscall(SYS_futex, &bell->rung, FUTEX_WAIT_BITSET, seen, &end, NULL, bits);
    atomic_fetch_sub(&bell->waiters, 1);
}

void ligi_bell_strike(ligi_bell *bell)
{
    atomic_fetch_add(&bell->rung, 1);
}

void ligi_bell_wake(ligi_bell *bell, int count, uint32_t bits)
{
    if (bits != 0 && atomic_load(&bell->waiters) != 0)
        syscall(SYS_futex, &bell->rung, FUTEX_WAKE_BITSET, count, NULL, NULL, bits);
}

void ligi_bell_ring_all(ligi_bell *bell)
{
    ligi_bell_strike(bell);
    ligi_bell_wake(bell, INT_MAX, LIGI_BELL_ANYBODY);
}

void ligi_bell_ring_one(ligi_bell *bell)
{
    ligi_bell_strike(bell);
    ligi_bell_wake(bell, 1, LIGI_BELL_ANYBODY);
}
