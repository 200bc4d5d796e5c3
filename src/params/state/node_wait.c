#include "params/state/node_wait.h"

#include "net/progress.h"

void ligi_node_lock(lig_params *node)
{
    if (node->session.net)
        ligi_net_lock(node->session.net);
    else
        pthread_mutex_lock(&node->lock);
}

void ligi_node_unlock(lig_params *node)
{
    if (node->session.net)
        ligi_net_unlock(node->session.net);
    else
        pthread_mutex_unlock(&node->lock);
}

static lig_status wait_alone(lig_params *node, int (*until)(void *context), void *context,
                             int64_t timeout_ns)
{
    int64_t deadline = ligi_time_until(timeout_ns);
    struct timespec at = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    lig_status status = LIG_OK;
    pthread_mutex_lock(&node->lock);
    while (!until(context) && status == LIG_OK) {
        if (deadline == INT64_MAX)
            pthread_cond_wait(&node->changed, &node->lock);
        else if (ligi_time_left(deadline) == 0)
            status = lig_fail(LIG_E_TIMEOUT, "timed out after %.3f s", (double)timeout_ns / 1e9);
        else
            pthread_cond_timedwait(&node->changed, &node->lock, &at);
    }
    pthread_mutex_unlock(&node->lock);
    return status;
}

typedef struct waiting {
    const lig_params *node;
    int (*until)(void *context);
    void *context;
    int departed;
} waiting;

static int is_over(void *context)
{
    waiting *self = context;
    if (self->until(self->context))
        return 1;
    return self->departed = ligi_node_has_departed(self->node);
}

/* One wait in several parts: `until` keeps its progress. */
lig_status ligi_node_wait(lig_params *node, int (*until)(void *context), void *context,
                          int64_t timeout_ns)
{
    waiting self = {node, until, context, 0};
    int64_t deadline = node->patience ? ligi_time_until(timeout_ns) : 0, left = timeout_ns;
    for (;;) {
        int last = node->patience == NULL || (left >= 0 && left <= LIGI_PATIENCE_NS);
        int64_t piece = last ? left : LIGI_PATIENCE_NS;
        lig_status status = node->session.net
                                ? ligi_net_wait(node->session.net, is_over, &self, piece)
                                : wait_alone(node, is_over, &self, piece);
        if (status == LIG_OK && self.departed)
            return lig_fail(LIG_E_CLOSED, "the parameters have been shut down");
        if (status != LIG_E_TIMEOUT || last)
            return status;
        if (!node->patience(node->patience_context))
            return lig_fail(LIG_E_CLOSED, "the call was cancelled while waiting");
        left = ligi_time_left(deadline);
    }
}

void ligi_node_wake(lig_params *node)
{
    if (node->session.net) {
        ligi_net_wake(node->session.net);
        return;
    }
    pthread_mutex_lock(&node->lock);
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
}
