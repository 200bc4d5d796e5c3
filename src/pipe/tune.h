/* Moves that shorten the simulated step itself: the last part of `auto`. */
#ifndef LIGI_PIPE_TUNE_H
#define LIGI_PIPE_TUNE_H

#include "pipe/measure.h"
#include "pipe/random.h"

/* Takes an assignment and lowers its step time, then its cut; memory and what is kept together or
 * apart stay as they must. Does nothing where a simulation costs too much for a search. */
lig_status ligi_tune(const ligi_job *job, uint64_t seed, double room_factor,
                     ligi_assignment *assignment);

#endif
