/* How far ahead of a worker's clock rows are asked for. Pure.
 *
 * What is asked for in a round is there by the end of the next, so what the worker may reach until
 * then is asked for now. Its clock advances about lambda in a round, so how far it gets in two is
 * taken as Poisson(2 lambda), and the window is the 0.9999 quantile of that. */
#ifndef LIGI_ACTION_TIMING_H
#define LIGI_ACTION_TIMING_H

#include <stdint.h>

typedef struct ligi_action_timing {
    double lambda, last; /* clocks a round: smoothed, and in the round before */
} ligi_action_timing;

void ligi_action_timing_init(ligi_action_timing *timing);
/* A round begins, `elapsed_ns` after the one before, in which the clock advanced by `clocks`.
 * Rounds are `round_ns` apart while there is something to do; when there was nothing for long, only
 * as much counts as would have been reached in a few rounds. */
void ligi_action_timing_round(ligi_action_timing *timing, int64_t clocks, int64_t elapsed_ns,
                              int64_t round_ns);
/* Clocks; at least 1. */
int64_t ligi_action_timing_window(const ligi_action_timing *timing);

/* How many rows may be on their way here. Rows come into the slots of those that have just left: of
 * some thousand the processor still knows where they lie, of more it looks up every one again. So
 * the rest is asked for as they come. */
#define LIGI_WANTS_GOOD 2048u

typedef struct ligi_throttle { /* embedded; zeroed is valid */
    uint64_t limit;
    int64_t since_ns; /* fewer than that have been under way at some time since */
} ligi_throttle;

/* A round begins, with so many under way for each worker. When none has come for two rounds (an
 * owner keeps what cannot be copied), more are asked for all the same. */
void ligi_throttle_round(ligi_throttle *throttle, uint64_t wants, int64_t now_ns, int64_t round_ns);
/* 1: no more for now. What was begun is gone on with a little longer: it is better to be through
 * with it. */
int ligi_throttle_holds(const ligi_throttle *throttle, uint64_t wants, int begun);

/* The 0.9999 quantile of a Poisson distribution with this mean, or one more. */
int64_t ligi_poisson_bound(double mean);

#endif
