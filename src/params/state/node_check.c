#include "params/state/node_check.h"

int ligi_node_is_here(const lig_params *node)
{
    return *(volatile uint8_t *)node->here == 1;
}

lig_status ligi_node_check(const lig_params *node)
{
    if (!ligi_node_is_here(node))
        return lig_fail(LIG_E_CLOSED,
                        "the parameter manager belongs to the parent process (forked)");
    if (atomic_load_explicit(&node->stopped, memory_order_acquire))
        return lig_fail(LIG_E_CLOSED, "the parameters have been shut down");
    return LIG_OK;
}

int ligi_node_has_departed(const lig_params *node)
{
    return atomic_load_explicit(&node->departed, memory_order_acquire) ||
           atomic_load_explicit(&node->stopped, memory_order_acquire);
}

lig_status ligi_node_check_others(lig_params *node)
{
    LIG_TRY(ligi_node_check(node));
    if (!atomic_load_explicit(&node->broken, memory_order_acquire))
        return LIG_OK;
    return ligi_failure_publish(&node->ended); /* it no longer changes */
}
