#include "params/node/params_info.h"

#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

uint32_t lig_params_rank(const lig_params *node)
{
    return node->rank;
}

uint32_t lig_params_node_count(const lig_params *node)
{
    return node->node_count;
}

uint64_t lig_params_key_count(const lig_params *node)
{
    return node->tables ? ligi_tables_entry_limit(node->tables) : 0;
}

static lig_status need_tables(const lig_params *node)
{
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler has no tables");
    return LIG_OK;
}

lig_status lig_params_offset(const lig_params *node, const char *table, int64_t *key)
{
    uint32_t number;
    LIG_TRY(need_tables(node));
    LIG_TRY(ligi_tables_find(node->tables, table ? table : "values", &number));
    *key = ligi_tables_offset(node->tables, number);
    return LIG_OK;
}

uint32_t lig_params_length(const lig_params *node, int64_t key)
{
    return node->tables ? ligi_tables_length_of_key(node->tables, key) : 0;
}

lig_status lig_params_lengths(const lig_params *node, const int64_t *keys, size_t count,
                              uint64_t *elements)
{
    LIG_TRY(need_tables(node));
    if (keys == NULL && count > 0)
        return lig_fail(LIG_E_INVALID, "keys is NULL, but the count is %zu", count);
    return ligi_tables_lengths(node->tables, keys, count, elements);
}

lig_status lig_params_set_lr(lig_params *node, const char *table, double lr)
{
    uint32_t number = 0;
    LIG_TRY(ligi_session_check(&node->session));
    LIG_TRY(need_tables(node));
    if (!(lr - lr == 0))
        return lig_fail(LIG_E_INVALID, "the learning rate must be finite");
    if (table)
        LIG_TRY(ligi_tables_find(node->tables, table, &number));
    for (uint32_t i = 0; i < ligi_tables_count(node->tables); i++)
        if (table == NULL || i == number)
            ligi_tables_set_lr(node->tables, i, lr);
    return LIG_OK;
}

lig_status lig_params_get_lr(const lig_params *node, const char *table, double *lr)
{
    uint32_t number = 0;
    LIG_TRY(need_tables(node));
    if (table)
        LIG_TRY(ligi_tables_find(node->tables, table, &number));
    *lr = ligi_tables_get_lr(node->tables, number);
    return LIG_OK;
}

/* --- statistics --- */

void ligi_params_counts_add(const ligi_params_counts *counts, lig_params_stats *stats)
{
    stats->pulls += counts->pulls;
    stats->pushes += counts->pushes;
    stats->sets += counts->sets;
    stats->local += counts->local;
    stats->replica += counts->replica;
    stats->shared += counts->shared;
    stats->remote += counts->remote;
    stats->intents += counts->intents;
    stats->samples += counts->samples;
}

/* Since the node was opened. Under the lock. */
static void gather(lig_params *node, lig_params_stats *stats)
{
    *stats = node->totals;
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (node->workers[i])
            ligi_params_counts_add(&node->workers[i]->counts, stats);
    if (node->tables == NULL)
        return;
    if (node->session.net) {
        ligi_net_stats net;
        ligi_net_stats_get(node->session.net, &net);
        stats->bytes_sent += net.sent_bytes;
        stats->bytes_received += net.received_bytes;
    }
    ligi_sync_stats(node, stats);
}

#define STATS_SUMS 16 /* the fields before rows_owned are counters since open */
_Static_assert(offsetof(lig_params_stats, rows_owned) == STATS_SUMS * sizeof(uint64_t),
               "counters come first");

lig_status lig_params_stats_get(lig_params *node, lig_params_stats *stats)
{
    LIG_TRY(ligi_session_mine(&node->session));
    ligi_node_lock(node);
    gather(node, stats);
    const uint64_t *zero = (const uint64_t *)&node->zero;
    uint64_t *sums = (uint64_t *)stats;
    for (size_t i = 0; i < STATS_SUMS; i++)
        sums[i] -= zero[i];
    stats->samples -= node->zero.samples;
    if (node->tables) {
        ligi_tables_counts counts = ligi_tables_counts_get(node->tables);
        stats->rows_owned = counts.owned;
        stats->rows_copied = counts.copied;
    }
    ligi_node_unlock(node);
    return LIG_OK;
}

lig_status lig_params_stats_reset(lig_params *node)
{
    LIG_TRY(ligi_session_mine(&node->session));
    ligi_node_lock(node);
    gather(node, &node->zero);
    ligi_node_unlock(node);
    return LIG_OK;
}
