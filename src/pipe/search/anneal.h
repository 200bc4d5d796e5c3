/* Simulated annealing over acyclic assignments: the one search that escapes the valleys of single
 * moves. */
#ifndef LIGI_ANNEAL_H
#define LIGI_ANNEAL_H

#include "pipe/graph/random.h"
#include "pipe/search/moves.h"

typedef struct ligi_heat {
    uint64_t steps;
    double start; /* first temperature, as a part of the mean size of a value */
    int soft; /* load may exceed its limit on the way, at a price: where limits are tight, two units
               * that change places pass through an assignment that breaks them */
} ligi_heat;

/* Lowers the cut of an assignment that keeps the limits. Ends on the best one seen that keeps them
 * too. */
lig_status ligi_anneal_cut(ligi_moves *moves, ligi_random *random, ligi_heat heat);

/* Lowers the bottleneck, whatever the cut, until `enough_ms`. Ends on the best assignment seen. */
lig_status ligi_anneal_load(ligi_moves *moves, ligi_random *random, uint64_t steps,
                            double enough_ms);

#endif
