/* Who gets a row. */
#include "params/placement/placement_policy.h"

/* A row that several nodes want in turn would be on its way all the time if nothing held it: where
 * it cannot be copied, and where the node has a copy that serves it as well, it rests. A node that
 * has nothing and is alone with its wish gets the row at once. */
static ligi_policy_act move(const ligi_policy_view *view, int can_copy)
{
    int hasty = can_copy && !view->has_copy;
    return hasty || view->rested >= LIGI_POLICY_REST ? LIGI_POLICY_MOVE : LIGI_POLICY_LATER;
}

ligi_policy_act ligi_policy(const ligi_policy_view *view)
{
    int can_copy = view->copyable && view->techniques != LIG_PARAMS_RELOCATION_ONLY;
    int can_move = !view->copyable || view->techniques != LIG_PARAMS_REPLICATION_ONLY;
    int free = !view->own && (view->other_count == 0 || !can_copy);

    if (free && can_move)
        return move(view, can_copy);
    if (can_copy && !view->has_copy)
        return LIGI_POLICY_COPY;
    return LIGI_POLICY_STAY;
}
