/* Stages that are intervals of one topological order: the part that can be solved exactly, and the
 * starting point of the searches. */
#ifndef LIGI_INTERVAL_STAGES_H
#define LIGI_INTERVAL_STAGES_H

#include "pipe/search/constraints.h"

/* Fills the smallest cap_ms that intervals of `order` (position -> unit) can achieve within memory
 * and with separated pairs; INFINITY if there is none. goal->cap_ms is not read. */
lig_status ligi_interval_bottleneck(const ligi_graph *graph, const ligi_goal *goal,
                                    const uint32_t *order, double *cap_ms);

/* Fills the intervals of `order` with the smallest cut within the goal; *found is 0 if there are
 * none. Exact up to some thousand units; beyond, a value that skips a whole stage is counted at
 * each border. */
lig_status ligi_interval_cut(const ligi_graph *graph, const ligi_goal *goal, const uint32_t *order,
                             uint32_t *stage, int *found);

/* Fills the smallest factor by which every device's memory must grow (or may shrink) for intervals
 * of `order`. */
lig_status ligi_interval_memory(const ligi_graph *graph, const ligi_goal *goal,
                                const uint32_t *order, double *factor);

#endif
