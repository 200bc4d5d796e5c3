/* Moves that shorten the simulated step: the last phase of `auto`. */
#ifndef LIGI_TUNE_STEP_H
#define LIGI_TUNE_STEP_H

#include "pipe/graph/random.h"
#include "pipe/search/plan_figures.h"

/* Lowers the step time of an assignment, then its cut; memory limits, groups and separated pairs
 * are respected. Does nothing if simulation is too expensive for a search. */
lig_status ligi_tune(const ligi_measure_job *job, uint64_t seed, double room_factor,
                     ligi_assignment *assignment);

#endif
