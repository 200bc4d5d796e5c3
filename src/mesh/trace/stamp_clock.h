/* The clock of the stamps: CLOCK_MONOTONIC, read by the processor's counter where that is cheaper
 * and reliable. A request has eight stamps; with clock_gettime they would take a quarter of its
 * time. The counter is synchronised with the clock every millisecond, so the two differ by some
 * tens of nanoseconds at most. Not shared: the caller guards it. */
#ifndef LIGI_STAMP_CLOCK_H
#define LIGI_STAMP_CLOCK_H

#include <stdint.h>

typedef struct ligi_stamp_clock { /* zero-initialised is valid, and reads the clock each time */
    int trusted;                  /* the counter may be used */
    uint64_t scale;               /* nanoseconds per tick, << 32; 0: not known yet */
    uint64_t tick;                /* value of the counter at `ns` */
    int64_t ns;
    uint64_t most;      /* ticks for which that is valid */
    uint64_t from_tick; /* the same two, from where the next scale is measured */
    int64_t from_ns;
    int64_t last; /* the last value returned: time does not go back */
} ligi_stamp_clock;

/* Checks whether the counter is reliable: the kernel must use it as its clock source. */
void ligi_stamp_clock_init(ligi_stamp_clock *ticks);
/* The counter now, or the clock if it is not reliable. Needs no guard. */
uint64_t ligi_stamp_clock_read(const ligi_stamp_clock *ticks);
/* The time of a reading that was made just now. */
int64_t ligi_stamp_clock_ns(ligi_stamp_clock *ticks, uint64_t reading);
/* The time of a reading made up to a second ago, without the guard: not moved forward to later
 * values. */
int64_t ligi_stamp_clock_then(ligi_stamp_clock *ticks, uint64_t reading);

/* The parts of it. Pure: the time at `tick`, now or in the past, or -1 if the clock must be read;
 * and its value between two readings of the counter. */
int64_t ligi_stamp_clock_at(ligi_stamp_clock *ticks, uint64_t tick);
int64_t ligi_stamp_clock_past(ligi_stamp_clock *ticks, uint64_t tick);
int64_t ligi_stamp_clock_set(ligi_stamp_clock *ticks, uint64_t before, int64_t ns, uint64_t after);

#endif
