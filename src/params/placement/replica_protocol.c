#include "params/placement/replica_protocol.h"

#include "params/placement/placement.h"
#include "params/tables/key_home.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>

/* --- pushes that are not in the owner's row yet --- */

void ligi_placement_unsettle(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    uint32_t era = placement->era & 1;

    if (mark->flags & LIGI_MARK_UNSETTLED)
        return;
    assert(!(mark->flags & (LIGI_MARK_ERA | LIGI_MARK_LAP)));
    mark->flags |= (uint16_t)(LIGI_MARK_UNSETTLED | (era ? LIGI_MARK_ERA : 0));
    placement->unsettled[era]++;
}

/* Pushes of the previous era are in the delta that was outstanding when it ended, or in the next
 * one: the era has ended for this entry when both are confirmed, regardless of later pushes. */
static void settle(ligi_placement *placement, ligi_entry entry, int more)
{
    ligi_mark *mark = &placement->marks[entry];
    uint32_t its = (mark->flags & LIGI_MARK_ERA) != 0;
    int old = its != (placement->era & 1);

    if (!(mark->flags & LIGI_MARK_UNSETTLED) || (more && !old))
        return;
    if (more && !(mark->flags & LIGI_MARK_LAP)) {
        mark->flags |= LIGI_MARK_LAP;
        return;
    }
    mark->flags &= (uint16_t)~(LIGI_MARK_UNSETTLED | LIGI_MARK_ERA | LIGI_MARK_LAP);
    assert(placement->unsettled[its] > 0);
    placement->unsettled[its]--;
    if (more)
        ligi_placement_unsettle(placement, entry);
}

uint32_t ligi_placement_next_era(ligi_placement *placement)
{
    assert(placement->unsettled[(placement->era + 1) & 1] == 0); /* of two eras one is free */
    return placement->era++;
}

/* --- sending --- */

/* Under the lock: no locked instruction needed. */
static void count_wants(ligi_placement *placement, ligi_entry entry, int more)
{
    uint64_t weight = ligi_placement_weight(placement, entry);
    uint64_t wants = atomic_load_explicit(&placement->wants, memory_order_relaxed);

    assert(more || (wants >= weight && placement->heavy >= weight - 1));
    atomic_store_explicit(&placement->wants, more ? wants + weight : wants - weight,
                          memory_order_relaxed);
    placement->heavy = more ? placement->heavy + weight - 1 : placement->heavy - (weight - 1);
}

lig_status ligi_placement_want(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];

    if (mark->flags & LIGI_MARK_WANTED)
        return LIG_OK;
    assert(ligi_tables_state(placement->tables, entry) == LIGI_ROW_ABSENT);
    mark->flags |= LIGI_MARK_WANTED;
    count_wants(placement, entry, 1);
    uint32_t to = ligi_tables_location(placement->tables, entry).node;
    return ligi_placement_send_item(placement, to, LIGI_ITEM_WANT, entry, 0);
}

static lig_status tell_drop(ligi_placement *placement, ligi_entry entry)
{
    ligi_row_location location = ligi_tables_location(placement->tables, entry);

    assert(!(placement->marks[entry].flags & LIGI_MARK_REPLICA));
    placement->marks[entry].flags &= (uint16_t)~LIGI_MARK_LEAVING;
    return ligi_placement_send_item(placement, location.node, LIGI_ITEM_DROP, entry,
                                    location.moves);
}

lig_status ligi_placement_send_delta(ligi_placement *placement, ligi_entry entry)
{
    ligi_row_location location = ligi_tables_location(placement->tables, entry);
    const ligi_sync_address address = {
        .to = location.node, .kind = LIGI_PARAMS_SYNC, .origin = placement->rank};
    size_t bytes = ligi_tables_delta_bytes(placement->tables, entry);
    void *row;

    LIG_TRY(ligi_sync_send_reserve(&placement->sender, &address, bytes, &row));
    if (!ligi_tables_take_pending(placement->tables, entry, row))
        return LIG_OK;
    assert(location.node != placement->rank); /* a replica is another node's */
    const ligi_sync_item item = {.key = ligi_tables_key(placement->tables, entry),
                                 .number = ++placement->marks[entry].number,
                                 .kind = LIGI_ITEM_DELTA,
                                 .flags = LIGI_ITEM_ROW,
                                 .extra = (uint32_t)location.moves};
    ligi_sync_send_add(&placement->sender, address.to, &item, bytes);
    ligi_placement_unsettle(placement, entry);
    return LIG_OK;
}

lig_status ligi_placement_give_up(ligi_placement *placement, ligi_entry entry)
{
    assert(placement->marks[entry].flags & LIGI_MARK_REPLICA);
    placement->marks[entry].flags &= (uint16_t)~LIGI_MARK_REPLICA;
    placement->counts.drops++;
    if (ligi_tables_drop(placement->tables, entry) == LIGI_ROW_ABSENT) {
        settle(placement, entry, 0);
        return tell_drop(placement, entry);
    }
    if (ligi_tables_has_sent(placement->tables, entry)) {
        placement->marks[entry].flags |= LIGI_MARK_LEAVING;
        return LIG_OK;
    }
    LIG_TRY(ligi_placement_send_delta(placement, entry));
    return tell_drop(placement, entry);
}

lig_status ligi_placement_surrender(ligi_placement *placement, ligi_entry entry)
{
    if (ligi_tables_state(placement->tables, entry) != LIGI_ROW_REPLICA)
        return LIG_OK;
    LIG_TRY(ligi_placement_give_up(placement, entry));
    if (ligi_tables_state(placement->tables, entry) == LIGI_ROW_ABSENT &&
        ligi_placement_is_interested(placement, entry))
        LIG_TRY(ligi_placement_want(placement, entry));
    return ligi_sync_send_flush(&placement->sender);
}

/* --- receiving --- */

/* A delta is confirmed. Later pushes are sent in the next round, or at once if the replica was
 * dropped. */
static lig_status confirmed(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    ligi_row_state state = ligi_tables_state(placement->tables, entry);
    int more = ligi_tables_has_pending(placement->tables, entry);

    assert(state != LIGI_ROW_OWNED && !ligi_tables_has_sent(placement->tables, entry));
    settle(placement, entry, more);
    if (state == LIGI_ROW_REPLICA)
        return more ? ligi_entries_add(&placement->dirty, &entry, 1) : LIG_OK;
    if (state == LIGI_ROW_DRAINING)
        LIG_TRY(ligi_placement_send_delta(placement, entry));
    if (mark->flags & LIGI_MARK_LEAVING)
        LIG_TRY(tell_drop(placement, entry));
    if (state == LIGI_ROW_ABSENT && ligi_placement_is_interested(placement, entry))
        return ligi_placement_want(placement, entry);
    return LIG_OK;
}

static lig_status taken(ligi_placement *placement, const ligi_sync_item *item, ligi_entry entry)
{
    if (item->number != placement->marks[entry].number ||
        !ligi_tables_has_sent(placement->tables, entry))
        return LIG_OK;
    ligi_tables_confirm(placement->tables, entry);
    return confirmed(placement, entry);
}

static lig_status fresh(ligi_placement *placement, const ligi_placement_incoming *incoming,
                        const ligi_sync_item *item, ligi_entry entry)
{
    int included = item->number == placement->marks[entry].number &&
                   ligi_tables_has_sent(placement->tables, entry);
    ligi_row_state state = ligi_tables_state(placement->tables, entry);

    if (state == LIGI_ROW_DRAINING)
        return taken(placement, item, entry);
    if (state != LIGI_ROW_REPLICA ||
        item->extra != (uint32_t)ligi_tables_location(placement->tables, entry).moves)
        return LIG_OK; /* for a replica that was dropped meanwhile */
    LIG_TRY(ligi_tables_install_replica(placement->tables, entry, incoming->row, included));
    return included ? confirmed(placement, entry) : LIG_OK;
}

static lig_status unexpected(const ligi_placement_incoming *incoming, const ligi_sync_item *item)
{
    return lig_fail(LIG_E_CORRUPT, "protocol error: node %u sent the row of key %lld to its owner",
                    incoming->from, (long long)item->key);
}

static void answered(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];

    if (!(mark->flags & LIGI_MARK_WANTED))
        return;
    mark->flags &= (uint16_t)~LIGI_MARK_WANTED;
    count_wants(placement, entry, 0);
}

/* If interest ended meanwhile, the replica is dropped. */
static lig_status copied(ligi_placement *placement, const ligi_placement_incoming *incoming,
                         const ligi_sync_item *item, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];

    if (ligi_tables_state(placement->tables, entry) != LIGI_ROW_ABSENT)
        return unexpected(incoming, item);
    assert(!(mark->flags & (LIGI_MARK_REPLICA | LIGI_MARK_OWNED)));
    answered(placement, entry);
    ligi_tables_location_update(placement->tables, entry,
                                (ligi_row_location){incoming->from, item->number});
    if (!ligi_placement_is_interested(placement, entry))
        return ligi_placement_send_item(placement, incoming->from, LIGI_ITEM_DROP, entry,
                                        item->number);
    placement->counts.replications++;
    mark->flags |= LIGI_MARK_REPLICA;
    LIG_TRY(ligi_tables_install_replica(placement->tables, entry, incoming->row, 0));
    return ligi_placement_watch(placement, entry);
}

static lig_status moved(ligi_placement *placement, const ligi_placement_incoming *incoming,
                        const ligi_sync_item *item, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    uint32_t home = ligi_tables_home(placement->tables, item->key);

    if (ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED ||
        item->number <= ligi_tables_location(placement->tables, entry).moves)
        return unexpected(incoming, item);
    assert(!(mark->flags & LIGI_MARK_OWNED));
    LIG_TRY(ligi_tables_install_owned(placement->tables, entry, item->number, incoming->row, 0));
    answered(placement, entry);
    mark->flags &= (uint16_t)~(LIGI_MARK_LEAVING | LIGI_MARK_REPLICA);
    mark->flags |= LIGI_MARK_OWNED;
    mark->others = 0;
    mark->arrived = (uint16_t)placement->round;
    settle(placement, entry, 0);
    placement->counts.relocations_in++;
    if (home == placement->rank || home == incoming->from)
        return LIG_OK;
    return ligi_placement_send_item(placement, home, LIGI_ITEM_HERE, entry, item->number);
}

lig_status ligi_placement_from_owner(ligi_placement *placement,
                                     const ligi_placement_incoming *incoming,
                                     const ligi_sync_item *item, ligi_entry entry)
{
    switch (item->kind) {
    case LIGI_ITEM_RELOCATED: return moved(placement, incoming, item, entry);
    case LIGI_ITEM_REPLICA: return copied(placement, incoming, item, entry);
    case LIGI_ITEM_FRESH: return fresh(placement, incoming, item, entry);
    default: return taken(placement, item, entry);
    }
}
