/* Who gets a row. Pure: the owner describes what it knows of one row and one node that is
 * interested in it, and is told what to do. It asks again whenever that changes: a node has become
 * interested, somebody's interest has ended, the row has rested.
 *
 * One interested node: the row moves there. Several: they get replicas. None: it stays. Where there
 * can be no replicas, a row stays while its owner is interested, and then goes to the one who asked
 * first. */
#ifndef LIGI_PLACEMENT_POLICY_H
#define LIGI_PLACEMENT_POLICY_H

#include <ligament/params.h>

#define LIGI_POLICY_REST                                                                           \
    2 /* rounds that a row stays before it moves on, where that is a choice                        \
       */

typedef struct ligi_placement_policy_view {
    lig_params_techniques techniques;
    int replicable;       /* 0: the optimizer's state is not a sum */
    int own;              /* the owner's workers are interested */
    uint32_t other_count; /* interested nodes besides the owner and the one in question */
    int has_replica;      /* the one in question */
    uint32_t rested;      /* rounds since the row last moved */
} ligi_placement_policy_view;

typedef enum ligi_placement_policy_act {
    LIGI_POLICY_STAY =
        0, /* the node uses its replica, or asks by message; look again at a change */
    LIGI_POLICY_REPLICATE,
    LIGI_POLICY_RELOCATE,
    LIGI_POLICY_LATER, /* it would move, but has not rested: look again in the next round */
} ligi_placement_policy_act;

ligi_placement_policy_act ligi_placement_policy(const ligi_placement_policy_view *view);

#endif
