/* The simulator for thousands of runs: memory is allocated once. */
#ifndef LIGI_SIMULATE_H
#define LIGI_SIMULATE_H

#include <ligament/pipe.h>

#include "pipe/graph/scratch.h"

typedef struct ligi_step ligi_step;

/* Borrows `stages`: its figures may change between runs, but not its counts and devices. */
lig_status ligi_step_init(ligi_step **step, const lig_pipe_stages *stages, uint32_t schedule,
                          uint32_t microbatches, ligi_scratch *scratch);

/* Fills the timeline like lig_pipe_simulate. The figures are not checked. */
lig_status ligi_step_run(ligi_step *step, lig_pipe_timeline *timeline);

#endif
