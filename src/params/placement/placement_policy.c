/* Relocate or replicate. */
#include "params/placement/placement_policy.h"

/* A row that several nodes want in turn would move constantly. Where it cannot be replicated, or
 * the node already has a replica, it rests for some rounds. A node without a replica that is the
 * only interested one gets the row at once. */
static ligi_placement_policy_act move(const ligi_placement_policy_view *view, int can_replicate)
{
    int hasty = can_replicate && !view->has_replica;
    return hasty || view->rested >= LIGI_POLICY_REST ? LIGI_POLICY_RELOCATE : LIGI_POLICY_LATER;
}

ligi_placement_policy_act ligi_placement_policy(const ligi_placement_policy_view *view)
{
    int can_replicate = view->replicable && view->techniques != LIG_PARAMS_RELOCATION_ONLY;
    int can_move = !view->replicable || view->techniques != LIG_PARAMS_REPLICATION_ONLY;
    int free = !view->own && (view->other_count == 0 || !can_replicate);

    if (free && can_move)
        return move(view, can_replicate);
    if (can_replicate && !view->has_replica)
        return LIGI_POLICY_REPLICATE;
    return LIGI_POLICY_STAY;
}
