/* How many rows may be in flight to a node. Pure. Arriving rows reuse the slots of rows that have
 * just left: up to some thousand of them are still in the TLB, more rows would miss on every
 * access. The others are requested as rows arrive. */
#ifndef LIGI_INFLIGHT_LIMIT_H
#define LIGI_INFLIGHT_LIMIT_H

#include <stdint.h>

#define LIGI_WANTS_GOOD 2048u

typedef struct ligi_throttle { /* embedded; zeroed is valid */
    uint64_t limit;
    int64_t since_ns; /* the smallest number outstanding since then */
} ligi_throttle;

/* A round begins with `count` rows outstanding per worker. If none has arrived for two rounds (an
 * owner keeps a row that cannot be replicated), more are requested anyway. */
void ligi_throttle_round(ligi_throttle *throttle, uint64_t wants, int64_t now_ns, int64_t round_ns);
/* 1: request no more for now. A segment in progress may exceed the limit slightly, because it is
 * better to finish it. */
int ligi_throttle_holds(const ligi_throttle *throttle, uint64_t wants, int begun);

#endif
