/* How far ahead of a worker's clock rows are requested. Pure. Rows requested in one round have
 * arrived by the end of the next, so a round requests everything the worker may reach until then.
 * The clock advances by about lambda per round; its progress in two rounds is modelled as Poisson(2
 * lambda), and the window is the 0.9999 quantile of that distribution. */
#ifndef LIGI_ACTION_TIMING_H
#define LIGI_ACTION_TIMING_H

#include <stdint.h>

typedef struct ligi_action_timing {
    double lambda, last; /* clocks per round: smoothed, and in the previous round */
} ligi_action_timing;

void ligi_action_timing_init(ligi_action_timing *timing);
/* A round begins, `elapsed_ns` after the previous one; the clock advanced by `clocks` meanwhile.
 * While there is work, rounds are `round_ns` apart; after a long idle time only the progress of a
 * few rounds is counted. */
void ligi_action_timing_round(ligi_action_timing *timing, int64_t clocks, int64_t elapsed_ns,
                              int64_t round_ns);
/* Clocks; at least 1. */
int64_t ligi_action_timing_window(const ligi_action_timing *timing);

/* The 0.9999 quantile of a Poisson distribution with this mean, or that plus one. */
int64_t ligi_poisson_bound(double mean);

#endif
