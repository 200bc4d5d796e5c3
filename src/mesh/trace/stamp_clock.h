/* The stamps' clock: CLOCK_MONOTONIC, read by the processor's counter where that is cheaper and can
 * be trusted. A request has eight stamps; asked for plainly they are a quarter of its time.
 *
 * The counter is set to the clock again whenever a millisecond has passed, so that the two differ
 * by some tens of nanoseconds at most, whatever becomes of either. Not shared: the caller guards
 * it. */
#ifndef LIGI_STAMP_CLOCK_H
#define LIGI_STAMP_CLOCK_H

#include <stdint.h>

typedef struct ligi_stamp_clock { /* zero-initialised is valid, and asks the clock each time */
    int trusted;                  /* the counter may be used */
    uint64_t scale;               /* nanoseconds a tick, << 32; 0: not known yet */
    uint64_t tick;                /* where the counter stood at `ns` */
    int64_t ns;
    uint64_t most;      /* ticks for which that serves */
    uint64_t from_tick; /* the same two, where the next scale is measured from */
    int64_t from_ns;
    int64_t last; /* what was given last: time does not go back */
} ligi_stamp_clock;

/* Finds out whether the counter can be trusted: the kernel must keep its own time by it. */
void ligi_stamp_clock_init(ligi_stamp_clock *ticks);
/* The counter now, or the clock where it is not trusted. Needs no guard. */
uint64_t ligi_stamp_clock_read(const ligi_stamp_clock *ticks);
/* The time of a reading that was made just now. */
int64_t ligi_stamp_clock_ns(ligi_stamp_clock *ticks, uint64_t reading);
/* Of one that was made up to a second ago, without the guard: not brought forward to what was given
 * since. */
int64_t ligi_stamp_clock_then(ligi_stamp_clock *ticks, uint64_t reading);

/* What that is made of. Pure: the time at `tick`, now or in the past, or -1 when the clock must be
 * asked; and what it said, between two looks at the counter. */
int64_t ligi_stamp_clock_at(ligi_stamp_clock *ticks, uint64_t tick);
int64_t ligi_stamp_clock_past(ligi_stamp_clock *ticks, uint64_t tick);
int64_t ligi_stamp_clock_set(ligi_stamp_clock *ticks, uint64_t before, int64_t ns, uint64_t after);

#endif
