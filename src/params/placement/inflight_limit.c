#include "params/placement/inflight_limit.h"

#define STALLED_ROUNDS 2

void ligi_throttle_round(ligi_throttle *throttle, uint64_t wants, int64_t now_ns, int64_t round_ns)
{
    int moves = wants < throttle->limit || throttle->limit == 0;

    if (!moves && now_ns - throttle->since_ns < STALLED_ROUNDS * round_ns)
        return;
    throttle->limit = moves ? LIGI_WANTS_GOOD : wants + LIGI_WANTS_GOOD;
    throttle->since_ns = now_ns;
}

int ligi_throttle_holds(const ligi_throttle *throttle, uint64_t wants, int begun)
{
    return wants >= (begun ? 2 * throttle->limit : throttle->limit);
}
