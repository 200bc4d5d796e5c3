/* How far ahead of a worker's clock rows are requested. */
#include "params/placement/action_timing.h"

#include <math.h>

#define INITIAL 10.0
#define SMOOTHING 0.1
#define IDLE_ROUNDS 16 /* a longer pause says nothing about the length of a round */
#define WINDOW_MAX 1e15
#define STALLED_ROUNDS 2

void ligi_action_timing_init(ligi_action_timing *timing)
{
    *timing = (ligi_action_timing){.lambda = INITIAL, .last = INITIAL};
}

void ligi_action_timing_round(ligi_action_timing *timing, int64_t clocks, int64_t elapsed_ns,
                              int64_t round_ns)
{
    double advanced = (double)clocks, pause = (double)elapsed_ns,
           longest = IDLE_ROUNDS * (double)round_ns;

    if (clocks <= 0)
        return;
    if (pause > longest)
        advanced *= longest / pause;
    timing->last = advanced;
    timing->lambda += SMOOTHING * (advanced - timing->lambda);
}

/* Central limit theorem with a skew correction; the test compares it with the exact sum. */
int64_t ligi_poisson_bound(double mean)
{
    if (!(mean > 0))
        return 0;
    double bound = ceil(mean + 3.719 * sqrt(mean) + 2);
    return bound < WINDOW_MAX ? (int64_t)bound : (int64_t)WINDOW_MAX;
}

int64_t ligi_action_timing_window(const ligi_action_timing *timing)
{
    double lambda = timing->last > timing->lambda ? timing->last : timing->lambda;
    int64_t window = ligi_poisson_bound(2 * lambda);

    return window > 0 ? window : 1;
}

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
