/* The offset of a peer's clock from this one, and the eight stamps of a request. Pure. A
 * measurement has four times: sent (local), received (peer), answered (peer), returned (local). The
 * time between sent and returned that is not between received and answered is transit; if it is
 * symmetric the offset is exact, and the error is never more than half of it. So the fastest of the
 * recent exchanges is used. */
#ifndef LIGI_CLOCK_OFFSET_H
#define LIGI_CLOCK_OFFSET_H

#include <ligament/mesh.h>

#define LIGI_OFFSET_WINDOW 256 /* measurements; two windows are used, because clocks drift */

typedef struct ligi_clock_offset {   /* zero-initialised is valid: unknown, offset 0 */
    int exact;                       /* both read the same clock: the offset is and stays 0 */
    uint32_t count;                  /* in this window */
    int64_t way_ns[2], offset_ns[2]; /* of the fastest: this window's, the last one's */
    int known[2];
} ligi_clock_offset;

void ligi_clock_offset_feed(ligi_clock_offset *offset, const uint64_t moments[4]);
/* Theirs minus mine. */
int64_t ligi_clock_offset_get(const ligi_clock_offset *offset);

/* Converts stamps 2..5 from the peer's clock to this one's; values that the estimate's error would
 * put before 1 or after 6 are clamped. */
void ligi_clock_offset_apply(const ligi_clock_offset *offset, uint64_t stamps[LIG_MESH_STAMPS]);

#endif
