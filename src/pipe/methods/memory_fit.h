/* Stages for as little memory as possible: the last resort before a refusal, and what the refusal
 * says. */
#ifndef LIGI_MEMORY_FIT_H
#define LIGI_MEMORY_FIT_H

#include "pipe/methods/mixed.h"

/* Fills the contiguous stages, among several tightnesses, that use the smallest part of the
 * devices' memory as a whole plan counts it; *use is that part (at most 1: they fit), INFINITY when
 * there are none. */
lig_status ligi_fit_memory(const ligi_measure_job *job, double balance, ligi_assignment *assignment,
                           ligi_figures *figures, double *use);

#endif
