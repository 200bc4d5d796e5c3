/* lig_params_intent: a worker queues the keys that it will access. */
#include "params/sync/sync_round.h"
#include "params/tables/row_access.h"
#include "params/tables/table_info.h"

static lig_status resolve(lig_params_worker *worker, const int64_t *keys, size_t count)
{
    ligi_intents *intents = worker->intents;
    const ligi_tables *tables = worker->node->tables;
    uint64_t limit = ligi_tables_entry_limit(tables), bad = 0, unused;

    LIG_TRY(ligi_grow(&intents->scratch, &intents->scratch_room, count, sizeof *intents->scratch,
                      "an intent"));
    if (ligi_tables_hashed(tables)) {
        LIG_TRY(ligi_tables_lengths(tables, keys, count, &unused));
        return ligi_tables_enter(worker->node->tables, keys, count, intents->scratch);
    }
    for (size_t i = 0; i < count; i++) {
        bad |= (uint64_t)keys[i] >= limit;
        intents->scratch[i] = (ligi_entry)keys[i];
    }
    return bad ? ligi_tables_lengths(tables, keys, count, &unused) : LIG_OK;
}

lig_status lig_params_intent(lig_params_worker *worker, const int64_t *keys, size_t count,
                             int64_t start, int64_t end)
{
    lig_params *node = worker->node;
    int64_t until = end != 0 ? end : start < INT64_MAX ? start + 1 : start;
    uint64_t elements;

    LIG_TRY(ligi_session_check(&node->session));
    if (count > 0 && keys == NULL)
        return lig_fail(LIG_E_INVALID, "keys is NULL, but the intent has %zu keys", count);
    if (until <= start)
        return lig_fail(LIG_E_INVALID, "intent starts at clock %lld but ends earlier, at %lld",
                        (long long)start, (long long)until);
    if (worker->intents == NULL)
        LIG_TRY(ligi_tables_lengths(node->tables, keys, count, &elements));
    else
        LIG_TRY(resolve(worker, keys, count));
    atomic_fetch_add_explicit(&worker->counts.intents, count, memory_order_relaxed);
    int64_t clock = atomic_load_explicit(&worker->clock, memory_order_relaxed);
    if (worker->intents == NULL || until <= clock)
        return LIG_OK;
    LIG_TRY(
        ligi_agenda_put(&worker->intents->agenda, worker->intents->scratch, count, start, until));
    ligi_sync_clock(worker);
    return LIG_OK;
}
