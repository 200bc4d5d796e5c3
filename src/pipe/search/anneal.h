/* Simulated annealing over acyclic assignments: the one search that escapes local minima of single
 * moves. */
#ifndef LIGI_ANNEAL_H
#define LIGI_ANNEAL_H

#include "pipe/graph/random.h"
#include "pipe/search/moves.h"

typedef struct ligi_heat {
    uint64_t steps;
    double start; /* initial temperature, as a fraction of the mean size of a value */
    int soft; /* load may exceed its limit temporarily, at a penalty: if limits are tight, swapping
               * two units passes through an assignment that violates them */
} ligi_heat;

/* Lowers the cut of an assignment that satisfies the limits. Ends with the best one seen that
 * does. */
lig_status ligi_anneal_cut(ligi_moves *moves, ligi_random *random, ligi_heat heat);

/* Lowers the bottleneck, regardless of the cut, to `enough_ms`. Ends with the best assignment
 * seen. */
lig_status ligi_anneal_load(ligi_moves *moves, ligi_random *random, uint64_t steps,
                            double enough_ms);

#endif
