#include "params/node/params_open.h"

#include "params/state/node.h"

#include "params/node/node_connect.h"
#include "params/node/node_leave.h"
#include "params/requests/request_complete.h"
#include "params/sampling/sampling.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/table_info.h"

#include <stdlib.h>

#define MINUTE_NS INT64_C(60000000000)

/* --- opening --- */

static lig_status check_counts(const lig_params_options *options)
{
    if (options->role > LIG_PARAMS_SCHEDULER)
        return lig_fail(LIG_E_INVALID, "invalid role %u: expected 0 (node) or 1 (scheduler)",
                        options->role);
    const uint32_t known = LIG_PARAMS_HAS_SCHEDULER | LIG_PARAMS_HASHED |
                           LIG_PARAMS_TRUSTED_FABRIC | LIG_PARAMS_ANY_DEVICE;
    if (options->flags & ~known)
        return lig_fail(LIG_E_INVALID, "unknown flags in 0x%x", options->flags);
    if (options->role == LIG_PARAMS_SCHEDULER && !(options->flags & LIG_PARAMS_HAS_SCHEDULER))
        return lig_fail(LIG_E_INVALID,
                        "role is scheduler, but flags do not include LIG_PARAMS_HAS_SCHEDULER");
    if (options->node_count == 0 || options->node_count > LIG_PARAMS_NODES_MAX)
        return lig_fail(LIG_E_INVALID, "node_count %u is not in 1 .. %u", options->node_count,
                        LIG_PARAMS_NODES_MAX);
    if (options->worker_count == 0 || options->worker_count > LIG_PARAMS_WORKERS_MAX)
        return lig_fail(LIG_E_INVALID, "worker_count %u is not in 1 .. %u", options->worker_count,
                        LIG_PARAMS_WORKERS_MAX);
    if (options->rank != UINT32_MAX && options->role == LIG_PARAMS_NODE &&
        options->rank >= options->node_count)
        return lig_fail(LIG_E_INVALID, "rank %u must be less than node_count %u", options->rank,
                        options->node_count);
    return LIG_OK;
}

static lig_status check_options(const lig_params_options *options)
{
    LIG_TRY(check_counts(options));
    int alone = options->node_count == 1 && !(options->flags & LIG_PARAMS_HAS_SCHEDULER);
    if (options->techniques > LIG_PARAMS_RELOCATION_ONLY)
        return lig_fail(LIG_E_INVALID, "invalid techniques %u", options->techniques);
    if (options->role == LIG_PARAMS_NODE &&
        (options->table_count == 0 || options->table_count > LIG_PARAMS_TABLES_MAX ||
         options->tables == NULL))
        return lig_fail(LIG_E_INVALID, "table_count %u is not in 1 .. %u", options->table_count,
                        LIG_PARAMS_TABLES_MAX);
    if (options->rank == UINT32_MAX && options->exchange)
        return lig_fail(LIG_E_INVALID, "with an exchange function every node must pass its rank");
    if (!alone && options->address == NULL && options->exchange == NULL)
        return lig_fail(LIG_E_INVALID, "no rendezvous address: pass \"host:port\"");
    if (options->batch_threads > LIGI_TEAM_MAX)
        return lig_fail(LIG_E_INVALID, "batch_threads %u is not in 0 .. %u", options->batch_threads,
                        LIGI_TEAM_MAX);
    if (options->round_ns < 0)
        return lig_fail(LIG_E_INVALID, "invalid round_ns %lld", (long long)options->round_ns);
    return LIG_OK;
}

static void init_locks(lig_params *node)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->changed, &attributes);
    pthread_mutex_init(&node->barrier.lock, NULL);
    pthread_cond_init(&node->barrier.changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void fini_locks(lig_params *node)
{
    pthread_mutex_destroy(&node->lock);
    pthread_cond_destroy(&node->changed);
    pthread_mutex_destroy(&node->barrier.lock);
    pthread_cond_destroy(&node->barrier.changed);
}

lig_status ligi_node_make_tables(lig_params *node, const lig_params_options *options,
                                 const ligi_region_source *source)
{
    ligi_tables_options made = {.tables = options->tables,
                                .table_count = options->table_count,
                                .dtype = options->dtype,
                                .flags = options->flags,
                                .rank = node->rank,
                                .node_count = node->node_count,
                                .source = source};
    LIG_TRY(ligi_tables_create(&node->tables, &made));
    uint64_t body = ligi_tables_body_bytes_max(node->tables);
    uint64_t delta = ligi_tables_delta_bytes_max(node->tables);
    node->payload_max = ligi_params_payload_max(body > delta ? body : delta);
    return ligi_sync_init(node);
}

static lig_status open_parts(lig_params *node, const lig_params_options *options)
{
    LIG_TRY(ligi_session_init(&node->session, &ligi_node_session, node));
    LIG_TRY(ligi_team_create(&node->team, options->batch_threads));
    LIG_TRY(ligi_calloc(&node->workers, node->worker_count, sizeof *node->workers, "the workers"));
    LIG_TRY(ligi_calloc(&node->barrier.deadlines_ns, node->worker_count,
                        sizeof *node->barrier.deadlines_ns, "the workers"));
    for (uint32_t i = 0; i < node->worker_count; i++)
        node->barrier.deadlines_ns[i] = INT64_MAX;
    if (node->node_count > 1 || (node->flags & LIG_PARAMS_HAS_SCHEDULER))
        return ligi_node_connect(node, options);
    node->rank = 0;
    return ligi_node_make_tables(node, options, NULL);
}

lig_status lig_params_open(lig_params **params, const lig_params_options *options)
{
    lig_params *node;
    LIG_TRY(check_options(options));
    LIG_TRY(ligi_calloc(&node, 1, sizeof *node, "the parameters"));
    node->role = options->role;
    node->rank = options->rank;
    node->node_count = options->node_count;
    node->worker_count = options->worker_count;
    node->techniques = options->techniques;
    node->flags = options->flags;
    node->timeout_ns = options->timeout_ns == 0 ? MINUTE_NS : options->timeout_ns;
    node->patience = options->patience;
    node->patience_context = options->patience_context;
    node->round_ns = options->round_ns == 0 ? 1000000 : options->round_ns;
    node->payload_max = LIGI_PARAMS_PAYLOAD_MAX;
    node->first_ticket = LIG_PARAMS_SHARED + 1;
    init_locks(node);
    lig_status status = open_parts(node, options);
    if (status == LIG_OK) {
        *params = node;
        return lig_params_stats_reset(node); /* connecting is not counted */
    }
    ligi_failure failure; /* close may overwrite the error text */
    ligi_failure_take(&failure, status);
    lig_params_close(node);
    return ligi_failure_publish(&failure);
}

/* --- closing --- */

void lig_params_close(lig_params *node)
{
    if (node == NULL)
        return;
    if (ligi_session_fini(&node->session)) {
        ligi_sync_fini(node);
        ligi_sampling_fini(node);
        ligi_params_snapshot_fini(node);
        ligi_params_request_forget(node);
        ligi_send_buffers_fini(node);
        ligi_tables_destroy(node->tables);
        ligi_team_destroy(node->team);
        fini_locks(node);
    } else {
        ligi_tables_forget(node->tables);
        ligi_team_forget(node->team);
    }
    ligi_node_free_peers(node);
    free(node->workers);
    free(node->barrier.deadlines_ns);
    free(node);
}
