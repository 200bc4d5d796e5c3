/* Stages that are intervals of one topological order: what can be solved exactly, and where the
 * rest begins. */
#ifndef LIGI_INTERVAL_H
#define LIGI_INTERVAL_H

#include "pipe/search/goal.h"

/* Fills the smallest cap_ms that intervals of `order` (position -> unit) can keep within memory and
 * with what is kept apart; INFINITY when there is none. goal->cap_ms is not read. */
lig_status ligi_interval_bottleneck(const ligi_graph *graph, const ligi_goal *goal,
                                    const uint32_t *order, double *cap_ms);

/* Fills the intervals of `order` with the smallest cut that keep to the goal; *found is 0 when
 * there are none. Exact up to some thousand units; beyond, a value that jumps over a whole stage
 * counts at each border. */
lig_status ligi_interval_cut(const ligi_graph *graph, const ligi_goal *goal, const uint32_t *order,
                             uint32_t *stage, int *found);

/* Fills the smallest factor by which every device's memory must grow (or may shrink) for intervals
 * of `order`. */
lig_status ligi_interval_memory(const ligi_graph *graph, const ligi_goal *goal,
                                const uint32_t *order, double *factor);

#endif
