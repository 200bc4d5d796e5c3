/* The constraints on an assignment of units to stages, derived from the options. */
#ifndef LIGI_CONSTRAINTS_H
#define LIGI_CONSTRAINTS_H

#include "pipe/graph/graph.h"

typedef struct ligi_goal {
    uint32_t stage_count;
    uint32_t device_count;
    uint32_t *stage_device;  /* [stage_count] */
    uint32_t *device_stages; /* [device_count]: how many stages each has */
    double *speed;           /* [device_count] */
    double *room;            /* [device_count] bytes; INFINITY without a limit */
    double *flight;          /* [stage_count]: micro-batches in flight */
    double cap_ms;           /* no device may be busier; INFINITY for no limit */
    double bound_ms;
} ligi_goal;

/* Rejects options that are invalid for any graph. */
lig_status ligi_partition_options_check(const lig_pipe_options *options);

/* Creates the goal for stages in their default places (`stage_device` NULL) or in the given ones,
 * without a cap. */
lig_status ligi_goal_make(const lig_pipe_options *options, const ligi_graph *graph,
                          uint32_t stage_count, const uint32_t *stage_device, ligi_goal *goal,
                          ligi_scratch *scratch);

/* The load that device `d` may carry, and one of its stages if all are balanced. The sums compared
 * with it were computed in different orders, hence the small tolerance. */
double ligi_goal_limit(const ligi_goal *goal, uint32_t device);
double ligi_goal_share(const ligi_goal *goal, uint32_t stage);

/* The lower bound on any bottleneck. */
double ligi_bound_ms(const ligi_graph *graph, const double *speed, uint32_t device_count);

#endif
