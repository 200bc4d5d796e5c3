/* How far ahead of a worker's clock rows are requested. */
#include "params/placement/action_timing.h"

#include <math.h>

#define INITIAL 10.0
#define SMOOTHING 0.1
#define IDLE_ROUNDS 16 /* a longer pause says nothing about the length of a round */
#define WINDOW_MAX 1e15

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
