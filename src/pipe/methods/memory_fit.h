/* Stages that need as little memory as possible: the last resort before failing, and the source of
 * the numbers in the error message. */
#ifndef LIGI_MEMORY_FIT_H
#define LIGI_MEMORY_FIT_H

#include "pipe/methods/mixed.h"

/* Fills the contiguous stages, among several factors, that use the smallest fraction of the
 * devices' memory as measured for a whole plan; *use is that fraction (at most 1 if they fit),
 * INFINITY if there are none. */
lig_status ligi_fit_memory(const ligi_measure_job *job, double balance, ligi_assignment *assignment,
                           ligi_figures *figures, double *use);

#endif
