/* Moves that shorten the simulated step itself: the last part of `auto`. */
#ifndef LIGI_TUNE_H
#define LIGI_TUNE_H

#include "pipe/graph/random.h"
#include "pipe/search/measure.h"

/* Takes an assignment and lowers its step time, then its cut; memory and what is kept together or
 * apart stay as they must. Does nothing where a simulation costs too much for a search. */
lig_status ligi_tune(const ligi_measure_job *job, uint64_t seed, double room_factor,
                     ligi_assignment *assignment);

#endif
