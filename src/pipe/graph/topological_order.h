/* Topological orders of the units. Intervals of different orders are different stages. */
#ifndef LIGI_TOPOLOGICAL_ORDER_H
#define LIGI_TOPOLOGICAL_ORDER_H

#include "pipe/graph/graph.h"
#include "pipe/graph/random.h"

typedef enum ligi_order_kind {
    LIGI_ORDER_GIVEN = 0,
    LIGI_ORDER_NARROW = 1, /* frees the most live bytes and adds the fewest first */
    LIGI_ORDER_DEEP = 2,   /* one branch after the other, in random order */
} ligi_order_kind;

/* Fills order[position] = unit. */
lig_status ligi_order_make(const ligi_graph *graph, ligi_order_kind kind, ligi_random *random,
                           uint32_t *order);

/* Fills an order in which the stages of an assignment are intervals. */
lig_status ligi_order_of_stages(const ligi_graph *graph, const uint32_t *stage,
                                uint32_t stage_count, uint32_t *order);

#endif
