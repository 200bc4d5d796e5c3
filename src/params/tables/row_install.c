#include "params/tables/row_install.h"

#include "params/rows/table_state.h"

#include "params/rows/row_init.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <string.h>

typedef struct place_in { /* a row this file works on: found by its word, which only structural
                           * changes modify */
    ligi_slab *slab;
    ligi_row_head *row;
    ligi_row_state state;
    uint32_t slot;
} place_in;

static place_in find(const ligi_tables *tables, ligi_entry entry)
{
    uint32_t word = ligi_tables_word(tables, entry);
    ligi_slab *slab = ligi_tables_slab(tables, entry);
    uint32_t slot = ligi_word_slot(word);

    return (place_in){slab, ligi_slab_row(slab, slot), ligi_word_state(word), slot};
}

void ligi_tables_fetch_word(const ligi_tables *tables, uint64_t entry)
{
    if (entry >= tables->entry_limit)
        return;
    __builtin_prefetch((const void *)&tables->words[entry], 1);
    __builtin_prefetch(&tables->entry_infos[entry], 1);
}

void ligi_tables_meet_word(const ligi_tables *tables, uint64_t entry)
{
    if (entry >= tables->entry_limit)
        return;
    (void)atomic_load_explicit(&tables->words[entry], memory_order_relaxed);
    (void)atomic_load_explicit(&tables->entry_infos[entry].location, memory_order_relaxed);
}

static const ligi_row_head *row_of(const ligi_tables *tables, uint64_t entry)
{
    uint32_t word = entry < tables->entry_limit ? ligi_tables_word(tables, (ligi_entry)entry) : 0;

    if (ligi_word_state(word) == LIGI_ROW_ABSENT)
        return NULL;
    return ligi_slab_row(ligi_tables_slab(tables, (ligi_entry)entry), ligi_word_slot(word));
}

void ligi_tables_meet_row(const ligi_tables *tables, uint64_t entry)
{
    const ligi_row_head *row = row_of(tables, entry);

    ligi_tables_fetch_word(tables, entry); /* to be written: others may have it too */
    if (row != NULL)
        ligi_row_meet(row);
}

void ligi_tables_fetch_row(const ligi_tables *tables, uint64_t entry)
{
    const ligi_row_head *row = row_of(tables, entry);

    if (row != NULL)
        ligi_row_fetch(row, ligi_tables_slab(tables, (ligi_entry)entry)->stride);
}

static uint8_t *state_of(const place_in *at)
{
    return ligi_row_body(at->row) + at->slab->state_at;
}

static void merge(const ligi_tables *tables, const place_in *at, const void *delta)
{
    ligi_row_merge sum = {ligi_row_body(at->row), state_of(at), delta, at->slab->length,
                          at->slab->state_count};

    tables->kernels->merge(&sum);
}

/* With dense keys only the caller, which serialises structural changes, uses the free lists; hashed
 * keys get rows when workers access them. A locked instruction waits for all earlier stores, and a
 * row that was just written is mostly not in the cache yet. */
static void enter_lists(ligi_tables *tables)
{
    if (tables->hashed)
        pthread_mutex_lock(&tables->lock);
}

static void leave_lists(ligi_tables *tables)
{
    if (tables->hashed)
        pthread_mutex_unlock(&tables->lock);
}

/* One thread at a time: no locked instruction needed. */
static void count(ligi_tables *tables, ligi_row_state state, uint64_t change)
{
    _Atomic uint64_t *counted = state == LIGI_ROW_OWNED     ? &tables->owned
                                : state == LIGI_ROW_REPLICA ? &tables->copied
                                                            : NULL;

    if (counted == NULL)
        return;
    uint64_t before = atomic_load_explicit(counted, memory_order_relaxed);
    assert(before > 0 || change == 1);
    atomic_store_explicit(counted, before + change, memory_order_relaxed);
}

/* With the row locked. */
static void flip(ligi_tables *tables, ligi_entry entry, place_in *at, ligi_row_state state)
{
    uint32_t word = state == LIGI_ROW_ABSENT ? 0 : ligi_word_make(state, at->slot);

    assert(at->row == ligi_slab_row(at->slab, at->slot) && at->slot < at->slab->used);
    atomic_store_explicit(&tables->words[entry], word, memory_order_release);
    if (state == at->state)
        return;
    count(tables, at->state, UINT64_MAX);
    count(tables, state, 1);
    at->state = state;
    if (tables->changed)
        tables->changed(tables->changed_context, entry, state);
}

/* With the row locked: it belongs to no entry from here on. */
static void give_deltas(place_in *at)
{
    assert(at->row->deltas || !(at->row->flags & (LIGI_ROW_PENDING | LIGI_ROW_SENT)));
    if (at->row->deltas)
        ligi_slab_give_deltas(at->slab, at->row->deltas);
    at->row->deltas = 0;
    at->row->flags &= ~(LIGI_ROW_PENDING | LIGI_ROW_SENT);
}

static void remove_row(ligi_tables *tables, ligi_entry entry, place_in *at)
{
    assert(at->state != LIGI_ROW_ABSENT);
    give_deltas(at);
    at->row->flags = 0;
    flip(tables, entry, at, LIGI_ROW_ABSENT);
    ligi_row_unlock(at->row);
    ligi_slab_give(at->slab, at->slot);
}

/* Finds the row, or a slot for one, and locks it. */
static lig_status enter(ligi_tables *tables, ligi_entry entry, place_in *at)
{
    *at = find(tables, entry);
    if (at->state == LIGI_ROW_ABSENT) {
        uint32_t used = at->slab->used;
        if (!ligi_slab_take(at->slab, &at->slot))
            return lig_fail(LIG_E_INTERNAL, "no free slot for the row of key %lld",
                            (long long)ligi_tables_key(tables, entry));
        if (at->slab->used != used)
            ligi_slab_populate(at->slab, at->slot);
        at->row = ligi_slab_row(at->slab, at->slot);
    }
    ligi_row_lock(at->row);
    return LIG_OK;
}

/* The owner's row plus local pushes that it lacks. */
static void take_in(ligi_tables *tables, place_in *at, const void *body, int sent_included)
{
    assert(at->row->deltas || !(at->row->flags & (LIGI_ROW_PENDING | LIGI_ROW_SENT)));
    tables->kernels->copy_in(ligi_row_body(at->row), body, at->slab->body_bytes);
    if (at->row->flags & LIGI_ROW_SENT && !sent_included)
        merge(tables, at, ligi_slab_sent(at->slab, at->row->deltas));
    if (at->row->flags & LIGI_ROW_PENDING)
        merge(tables, at, ligi_slab_pending(at->slab, at->row->deltas));
    if (sent_included)
        at->row->flags &= ~LIGI_ROW_SENT;
}

lig_status ligi_tables_install_owned(ligi_tables *tables, ligi_entry entry, uint64_t moves,
                                     const void *body, int sent_included)
{
    place_in at;

    enter_lists(tables);
    lig_status status = enter(tables, entry, &at);
    if (!status) {
        assert(at.state != LIGI_ROW_OWNED && ligi_tables_location(tables, entry).moves < moves);
        take_in(tables, &at, body, sent_included);
        give_deltas(&at);
        at.row->flags = 0;
        ligi_tables_location_update(tables, entry, (ligi_row_location){tables->rank, moves});
        flip(tables, entry, &at, LIGI_ROW_OWNED);
        ligi_row_unlock(at.row);
    }
    leave_lists(tables);
    return status;
}

static lig_status give_pair(place_in *at)
{
    if (at->row->deltas == 0 && at->slab->deltas)
        at->row->deltas = ligi_slab_take_deltas(at->slab);
    return at->row->deltas ? LIG_OK
                           : lig_fail(LIG_E_INTERNAL, "no free slot for a replica's deltas");
}

lig_status ligi_tables_install_replica(ligi_tables *tables, ligi_entry entry, const void *body,
                                       int sent_included)
{
    place_in at;

    enter_lists(tables);
    lig_status status = enter(tables, entry, &at);
    if (!status) {
        int fresh = at.state == LIGI_ROW_ABSENT;
        status = give_pair(&at);
        assert(status || at.state != LIGI_ROW_OWNED);
        if (!status) {
            take_in(tables, &at, body, sent_included);
            at.row->flags |= LIGI_ROW_SHARED;
            flip(tables, entry, &at, LIGI_ROW_REPLICA);
        }
        ligi_row_unlock(at.row);
        if (status && fresh)
            ligi_slab_give(at.slab, at.slot);
    }
    leave_lists(tables);
    return status;
}

uint64_t ligi_tables_leave(ligi_tables *tables, ligi_entry entry, uint32_t to, void *body)
{
    uint64_t moves = ligi_tables_location(tables, entry).moves + 1;

    enter_lists(tables);
    place_in at = find(tables, entry);
    assert(at.state == LIGI_ROW_OWNED);
    ligi_row_lock(at.row);
    tables->kernels->copy_out(body, ligi_row_body(at.row), at.slab->body_bytes);
    ligi_tables_location_update(tables, entry, (ligi_row_location){to, moves});
    remove_row(tables, entry, &at);
    leave_lists(tables);
    return moves;
}

ligi_row_state ligi_tables_drop(ligi_tables *tables, ligi_entry entry)
{
    enter_lists(tables);
    place_in at = find(tables, entry);
    assert(at.state == LIGI_ROW_REPLICA || at.state == LIGI_ROW_DRAINING);
    ligi_row_lock(at.row);
    if (at.row->flags & (LIGI_ROW_PENDING | LIGI_ROW_SENT)) {
        flip(tables, entry, &at, LIGI_ROW_DRAINING);
        ligi_row_unlock(at.row);
    } else {
        remove_row(tables, entry, &at);
    }
    leave_lists(tables);
    return at.state;
}

static int has_deltas(ligi_row_state state)
{
    return state == LIGI_ROW_REPLICA || state == LIGI_ROW_DRAINING;
}

int ligi_tables_take_pending(ligi_tables *tables, ligi_entry entry, void *delta)
{
    place_in at = find(tables, entry);
    int taken = 0;

    if (!has_deltas(at.state))
        return 0;
    ligi_row_lock(at.row);
    if (at.row->flags & LIGI_ROW_PENDING && !(at.row->flags & LIGI_ROW_SENT)) {
        assert(at.row->deltas);
        const uint8_t *pending = ligi_slab_pending(at.slab, at.row->deltas);
        size_t bytes = (size_t)at.slab->delta_count * at.slab->delta_element_bytes;
        memcpy(delta, pending, bytes);
        memcpy(ligi_slab_sent(at.slab, at.row->deltas), pending, bytes);
        at.row->flags &= ~LIGI_ROW_PENDING;
        at.row->flags |= LIGI_ROW_SENT;
        taken = 1;
    }
    if (!(at.row->flags & LIGI_ROW_PENDING))
        at.row->flags &= ~LIGI_ROW_DIRTY;
    ligi_row_unlock(at.row);
    return taken;
}

/* Flags of a replica; 0 of others. */
static uint32_t flags_of(const ligi_tables *tables, ligi_entry entry)
{
    place_in at = find(tables, entry);

    if (!has_deltas(at.state))
        return 0;
    ligi_row_lock(at.row);
    uint32_t flags = at.row->flags;
    ligi_row_unlock(at.row);
    return flags;
}

int ligi_tables_has_pending(const ligi_tables *tables, ligi_entry entry)
{
    return (flags_of(tables, entry) & LIGI_ROW_PENDING) != 0;
}

int ligi_tables_has_sent(const ligi_tables *tables, ligi_entry entry)
{
    return (flags_of(tables, entry) & LIGI_ROW_SENT) != 0;
}

ligi_row_state ligi_tables_confirm(ligi_tables *tables, ligi_entry entry)
{
    enter_lists(tables);
    place_in at = find(tables, entry);
    if (has_deltas(at.state)) {
        ligi_row_lock(at.row);
        at.row->flags &= ~LIGI_ROW_SENT;
        if (at.state == LIGI_ROW_DRAINING && !(at.row->flags & LIGI_ROW_PENDING))
            remove_row(tables, entry, &at);
        else
            ligi_row_unlock(at.row);
    }
    leave_lists(tables);
    return at.state;
}

int ligi_tables_add_delta(ligi_tables *tables, ligi_entry entry, const void *delta)
{
    place_in at = find(tables, entry);

    assert(at.state == LIGI_ROW_OWNED);
    ligi_row_lock(at.row);
    merge(tables, &at, delta);
    int noted = ligi_row_becomes_dirty(at.row);
    ligi_row_unlock(at.row);
    return noted;
}

void ligi_tables_share(ligi_tables *tables, ligi_entry entry, int shared)
{
    place_in at = find(tables, entry);

    assert(at.state == LIGI_ROW_OWNED);
    ligi_row_lock(at.row);
    at.row->flags = shared ? at.row->flags | LIGI_ROW_SHARED : 0;
    ligi_row_unlock(at.row);
}

int ligi_tables_take_fresh(ligi_tables *tables, ligi_entry entry, void *body)
{
    place_in at = find(tables, entry);

    assert(at.state == LIGI_ROW_OWNED);
    ligi_row_lock(at.row);
    int dirty = (at.row->flags & LIGI_ROW_DIRTY) != 0;
    at.row->flags &= ~LIGI_ROW_DIRTY;
    tables->kernels->copy_out(body, ligi_row_body(at.row), at.slab->body_bytes);
    ligi_row_unlock(at.row);
    return dirty;
}

int ligi_tables_get_body(const ligi_tables *tables, ligi_entry entry, void *body)
{
    for (;;) {
        place_in at = find(tables, entry);
        if (at.state != LIGI_ROW_OWNED && at.state != LIGI_ROW_REPLICA)
            return 0;
        ligi_row_lock(at.row);
        int same = ligi_tables_word(tables, entry) == ligi_word_make(at.state, at.slot);
        if (same)
            tables->kernels->copy_out(body, ligi_row_body(at.row), at.slab->body_bytes);
        ligi_row_unlock(at.row);
        if (same)
            return 1;
    }
}

int ligi_tables_set_body(ligi_tables *tables, ligi_entry entry, const void *body)
{
    for (;;) {
        place_in at = find(tables, entry);
        if (at.state != LIGI_ROW_OWNED)
            return -1;
        ligi_row_lock(at.row);
        int noted = -1;
        if (ligi_tables_word(tables, entry) == ligi_word_make(at.state, at.slot)) {
            tables->kernels->copy_in(ligi_row_body(at.row), body, at.slab->body_bytes);
            noted = ligi_row_becomes_dirty(at.row);
        }
        ligi_row_unlock(at.row);
        if (noted >= 0)
            return noted;
    }
}

void ligi_tables_first_body(const ligi_tables *tables, ligi_entry entry, void *body)
{
    const ligi_slab *slab = ligi_tables_slab(tables, entry);
    const ligi_table_info *info = &tables->infos[slab->table];
    uint64_t key = (uint64_t)(ligi_tables_key(tables, entry) - info->offset);
    ligi_row_init row = {&info->init, tables->dtype, slab->table, key, slab->length};

    memset(body, 0, slab->body_bytes);
    ligi_row_init_fill(&row, body);
}

/* Rows of zeros are not touched: their pages are populated on first use. */
static void begin_unseen(ligi_tables *tables, ligi_entry entry, place_in *at)
{
    if (!ligi_row_init_zero(&tables->infos[at->slab->table].init))
        ligi_tables_first_body(tables, entry, ligi_row_body(at->row));
    flip(tables, entry, at, LIGI_ROW_OWNED);
}

/* A slot that was in use may still be read by a thread that has not noticed. */
static void begin_again(ligi_tables *tables, ligi_entry entry, place_in *at)
{
    ligi_tables_first_body(tables, entry, tables->scratch);
    ligi_row_lock(at->row);
    tables->kernels->copy_in(ligi_row_body(at->row), tables->scratch, at->slab->body_bytes);
    at->row->flags = 0;
    flip(tables, entry, at, LIGI_ROW_OWNED);
    ligi_row_unlock(at->row);
}

lig_status ligi_tables_begin_row(ligi_tables *tables, ligi_entry entry)
{
    place_in at = find(tables, entry);
    uint32_t used = at.slab->used;

    assert(at.state == LIGI_ROW_ABSENT);
    if (!ligi_slab_take(at.slab, &at.slot))
        return lig_fail(LIG_E_INTERNAL, "no free slot for the row of key %lld",
                        (long long)ligi_tables_key(tables, entry));
    at.row = ligi_slab_row(at.slab, at.slot);
    if (at.slab->used > used)
        begin_unseen(tables, entry, &at);
    else
        begin_again(tables, entry, &at);
    return LIG_OK;
}
