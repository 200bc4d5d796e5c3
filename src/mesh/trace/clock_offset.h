/* How far a peer's clock is ahead of this one's, and the eight stamps of a request. Pure.
 *
 * Four moments make a measurement: sent (mine), heard (theirs), answered (theirs), back (mine).
 * What lies between sent and back but not between heard and answered was spent on the way; if it
 * was the same both ways the offset is exact, and it is never wrong by more than half of it. So the
 * fastest exchange of the last ones counts. */
#ifndef LIGI_CLOCK_OFFSET_H
#define LIGI_CLOCK_OFFSET_H

#include <ligament/mesh.h>

#define LIGI_OFFSET_WINDOW 256 /* measurements; two windows are looked at, because clocks drift */

typedef struct ligi_clock_offset {   /* zero-initialised is valid: unknown, offset 0 */
    int exact;                       /* both read the same clock: the offset is 0 and stays so */
    uint32_t count;                  /* in this window */
    int64_t way_ns[2], offset_ns[2]; /* of the fastest: this window's, the last one's */
    int known[2];
} ligi_clock_offset;

void ligi_clock_offset_feed(ligi_clock_offset *offset, const uint64_t moments[4]);
/* Theirs minus mine. */
int64_t ligi_clock_offset_get(const ligi_clock_offset *offset);

/* Brings stamps 2..5 from the peer's clock to this one's; what an estimate's error would put before
 * 1 or behind 6 is put there. */
void ligi_clock_offset_apply(const ligi_clock_offset *offset, uint64_t stamps[LIG_MESH_STAMPS]);

#endif
