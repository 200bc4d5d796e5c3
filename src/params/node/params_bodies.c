#include "params/rows/table_state.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_AHEAD = 16, ROWS_AHEAD = 8 };

uint64_t lig_params_state_length(const lig_params *params, int64_t key)
{
    const ligi_tables *tables = params->tables;
    int table = tables ? ligi_tables_table_of_key(tables, key) : -1;

    if (table < 0)
        return 0;
    return ligi_optimizer_state_count(ligi_tables_optimizer(tables, (uint32_t)table)->kind,
                                      ligi_tables_length_of_key(tables, key));
}

static lig_status check(const lig_params_worker *worker, const lig_params_rows *rows)
{
    const ligi_tables *tables = worker->node->tables;
    uint64_t elements, state = 0;

    LIG_TRY(ligi_session_check(&worker->node->session));
    if (!ligi_node_alone(worker->node))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "rows with their optimizer state can be accessed only if the job has one "
                        "node: it has %u",
                        worker->node->node_count);
    if (rows->count > 0 &&
        (!rows->keys || !rows->values || (!rows->state && rows->state_elements > 0)))
        return lig_fail(LIG_E_INVALID, "keys, values or state is NULL (%zu keys)", rows->count);
    LIG_TRY(ligi_tables_lengths(tables, rows->keys, rows->count, &elements));
    for (size_t i = 0; i < rows->count; i++)
        state += lig_params_state_length(worker->node, rows->keys[i]);
    if (elements != rows->elements || state != rows->state_elements)
        return lig_fail(LIG_E_INVALID,
                        "the rows of %zu keys have %llu elements and %llu of state, but values has "
                        "%llu and state %llu",
                        rows->count, (unsigned long long)elements, (unsigned long long)state,
                        (unsigned long long)rows->elements,
                        (unsigned long long)rows->state_elements);
    return LIG_OK;
}

typedef struct cursor { /* in the caller's memory */
    uint8_t *values, *state;
} cursor;

/* Between a row's body and the caller's memory. */
static void split_body(const ligi_slab *slab, const uint8_t *body, cursor *to)
{
    size_t state_bytes = (size_t)slab->state_count * slab->delta_element_bytes;

    memcpy(to->values, body, slab->value_bytes);
    if (state_bytes > 0)
        memcpy(to->state, body + slab->state_at, state_bytes);
    to->values += slab->value_bytes;
    to->state += state_bytes;
}

static void join_body(const ligi_slab *slab, cursor *from, uint8_t *body)
{
    size_t state_bytes = (size_t)slab->state_count * slab->delta_element_bytes;

    memset(body, 0, slab->body_bytes);
    memcpy(body, from->values, slab->value_bytes);
    if (state_bytes > 0)
        memcpy(body + slab->state_at, from->state, state_bytes);
    from->values += slab->value_bytes;
    from->state += state_bytes;
}

static ligi_entry entry_at(const ligi_tables *tables, const ligi_entry *entries,
                           const lig_params_rows *rows, size_t i)
{
    return tables->hashed ? entries[i] : (ligi_entry)rows->keys[i];
}

/* The lock keeps the structure as it is; on a single node it delays only saves and barriers. */
static void access_all(lig_params *node, const lig_params_rows *rows, const ligi_entry *entries,
                       uint8_t *body, int writes)
{
    ligi_tables *tables = node->tables;
    cursor at = {rows->values, rows->state};

    ligi_node_lock(node);
    for (size_t i = 0; i < rows->count; i++) {
        ligi_entry entry = entry_at(tables, entries, rows, i);
        if (i + WORDS_AHEAD < rows->count)
            ligi_tables_fetch_word(tables, entry_at(tables, entries, rows, i + WORDS_AHEAD));
        if (i + ROWS_AHEAD < rows->count)
            ligi_tables_fetch_row(tables, entry_at(tables, entries, rows, i + ROWS_AHEAD));
        const ligi_slab *slab = ligi_tables_slab(tables, entry);
        if (writes) {
            join_body(slab, &at, body);
            (void)ligi_tables_set_body(tables, entry, body);
        } else {
            (void)ligi_tables_get_body(tables, entry, body);
            split_body(slab, body, &at);
        }
    }
    ligi_node_unlock(node);
}

static lig_status access_rows(lig_params_worker *worker, const lig_params_rows *rows, int writes)
{
    ligi_tables *tables = worker->node->tables;
    ligi_entry *entries = NULL;

    LIG_TRY(check(worker, rows));
    if (rows->count == 0)
        return LIG_OK;
    LIG_TRY(ligi_grow(&worker->aside, &worker->aside_room, ligi_tables_body_bytes_max(tables), 1,
                      "rows"));
    if (tables->hashed) {
        LIG_TRY(ligi_alloc(&entries, rows->count * sizeof *entries, "a batch of keys"));
        lig_status status = ligi_tables_enter(tables, rows->keys, rows->count, entries);
        if (status != LIG_OK) {
            free(entries);
            return status;
        }
    }
    access_all(worker->node, rows, entries, worker->aside, writes);
    free(entries);
    return LIG_OK;
}

lig_status lig_params_get_rows(lig_params_worker *worker, const lig_params_rows *rows)
{
    LIG_TRY(access_rows(worker, rows, 0));
    atomic_fetch_add_explicit(&worker->counts.pulls, rows->count, memory_order_relaxed);
    atomic_fetch_add_explicit(&worker->counts.local, rows->count, memory_order_relaxed);
    return LIG_OK;
}

lig_status lig_params_set_rows(lig_params_worker *worker, const lig_params_rows *rows)
{
    LIG_TRY(access_rows(worker, rows, 1));
    atomic_fetch_add_explicit(&worker->counts.sets, rows->count, memory_order_relaxed);
    atomic_fetch_add_explicit(&worker->counts.local, rows->count, memory_order_relaxed);
    return LIG_OK;
}
