/* Decides whether a row is relocated or replicated. Pure: the owner describes one row and one
 * interested node, and gets the action. It asks again whenever the facts change: another node has
 * become interested, an interest has ended, the row has rested. One interested node: relocate.
 * Several: replicate. None: keep. If the table cannot be replicated, the row stays while its owner
 * is interested, and is then relocated to the node that asked first. */
#ifndef LIGI_PLACEMENT_POLICY_H
#define LIGI_PLACEMENT_POLICY_H

#include <ligament/params.h>

#define LIGI_POLICY_REST 2 /* rounds between two relocations of a row, where there is a choice */

typedef struct ligi_placement_policy_view {
    lig_params_techniques techniques;
    int replicable;       /* 0: the optimizer state is not a sum */
    int own;              /* the owner's workers are interested */
    uint32_t other_count; /* interested nodes other than the owner and the node in question */
    int has_replica;      /* the node in question */
    uint32_t rested;      /* rounds since the last relocation */
} ligi_placement_policy_view;

typedef enum ligi_placement_policy_act {
    LIGI_POLICY_STAY = 0, /* the node uses its replica, or sends requests; ask again at a change */
    LIGI_POLICY_REPLICATE,
    LIGI_POLICY_RELOCATE,
    LIGI_POLICY_LATER, /* would be relocated, but has not rested: ask again in the next round */
} ligi_placement_policy_act;

ligi_placement_policy_act ligi_placement_policy(const ligi_placement_policy_view *view);

#endif
