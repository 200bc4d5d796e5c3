/* Stages for as little memory as possible: the last resort before a refusal, and what the refusal
 * says. */
#ifndef LIGI_PIPE_ROOM_H
#define LIGI_PIPE_ROOM_H

#include "pipe/mixed.h"

/* Fills the contiguous stages, among several tightnesses, that use the smallest part of the
 * devices' memory as a whole plan counts it; *use is that part (at most 1: they fit), INFINITY when
 * there are none. */
lig_status ligi_room_search(const ligi_job *job, double balance, ligi_assignment *assignment,
                            ligi_figures *figures, double *use);

#endif
