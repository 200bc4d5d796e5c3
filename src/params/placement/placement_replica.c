#include "params/placement/placement_replica.h"

#include "params/placement/placement.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

/* --- what is not in the owner's row yet --- */

void ligi_steward_unsettle(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    uint32_t era = steward->era & 1;

    if (mark->flags & LIGI_MARK_UNSETTLED)
        return;
    mark->flags |= (uint16_t)(LIGI_MARK_UNSETTLED | (era ? LIGI_MARK_ERA : 0));
    steward->unsettled[era]++;
}

/* What was pushed in the era before is in the delta that was under way when it ended, or in the one
 * after: it has ended for this entry when both are confirmed, however much was pushed since. */
static void settle(ligi_steward *steward, ligi_entry entry, int more)
{
    ligi_mark *mark = &steward->marks[entry];
    uint32_t its = (mark->flags & LIGI_MARK_ERA) != 0;
    int old = its != (steward->era & 1);

    if (!(mark->flags & LIGI_MARK_UNSETTLED) || (more && !old))
        return;
    if (more && !(mark->flags & LIGI_MARK_LAP)) {
        mark->flags |= LIGI_MARK_LAP;
        return;
    }
    mark->flags &= (uint16_t)~(LIGI_MARK_UNSETTLED | LIGI_MARK_ERA | LIGI_MARK_LAP);
    steward->unsettled[its]--;
    if (more)
        ligi_steward_unsettle(steward, entry);
}

uint32_t ligi_steward_next_era(ligi_steward *steward)
{
    return steward->era++;
}

/* --- saying --- */

/* Under the lock: no need for a locked instruction. */
static void count_wants(ligi_steward *steward, uint64_t change)
{
    atomic_store_explicit(&steward->wants,
                          atomic_load_explicit(&steward->wants, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

lig_status ligi_steward_want(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];

    if (mark->flags & LIGI_MARK_WANTED)
        return LIG_OK;
    mark->flags |= LIGI_MARK_WANTED;
    count_wants(steward, 1);
    uint32_t to = ligi_tables_place(steward->tables, entry).node;
    return ligi_steward_tell(steward, to, LIGI_ITEM_WANT, entry, 0);
}

static lig_status tell_drop(ligi_steward *steward, ligi_entry entry)
{
    ligi_place place = ligi_tables_place(steward->tables, entry);

    steward->marks[entry].flags &= (uint16_t)~LIGI_MARK_LEAVING;
    return ligi_steward_tell(steward, place.node, LIGI_ITEM_DROP, entry, place.moves);
}

lig_status ligi_steward_send_delta(ligi_steward *steward, ligi_entry entry)
{
    ligi_place place = ligi_tables_place(steward->tables, entry);
    const ligi_address address = {
        .to = place.node, .kind = LIGI_LETTER_SYNC, .origin = steward->rank};
    size_t bytes = ligi_tables_delta_bytes(steward->tables, entry);
    void *row;

    LIG_TRY(ligi_courier_room(&steward->courier, &address, bytes, &row));
    if (!ligi_tables_take_pending(steward->tables, entry, row))
        return LIG_OK;
    const ligi_item item = {.key = ligi_tables_key(steward->tables, entry),
                            .number = ++steward->marks[entry].number,
                            .kind = LIGI_ITEM_DELTA,
                            .flags = LIGI_ITEM_ROW,
                            .extra = (uint32_t)place.moves};
    ligi_courier_add(&steward->courier, address.to, &item, bytes);
    ligi_steward_unsettle(steward, entry);
    return LIG_OK;
}

lig_status ligi_steward_give_up(ligi_steward *steward, ligi_entry entry)
{
    steward->marks[entry].flags &= (uint16_t)~LIGI_MARK_COPY;
    steward->counts.drops++;
    if (ligi_tables_drop(steward->tables, entry) == LIGI_ROW_ABSENT) {
        settle(steward, entry, 0);
        return tell_drop(steward, entry);
    }
    if (ligi_tables_has_sent(steward->tables, entry)) {
        steward->marks[entry].flags |= LIGI_MARK_LEAVING;
        return LIG_OK;
    }
    LIG_TRY(ligi_steward_send_delta(steward, entry));
    return tell_drop(steward, entry);
}

lig_status ligi_steward_surrender(ligi_steward *steward, ligi_entry entry)
{
    if (ligi_tables_state(steward->tables, entry) != LIGI_ROW_COPY)
        return LIG_OK;
    LIG_TRY(ligi_steward_give_up(steward, entry));
    if (ligi_tables_state(steward->tables, entry) == LIGI_ROW_ABSENT &&
        ligi_steward_cares(steward, entry))
        LIG_TRY(ligi_steward_want(steward, entry));
    return ligi_courier_send(&steward->courier);
}

/* --- hearing --- */

/* A delta is in. What was pushed since goes in the next round; unless the copy was given up, then
 * at once. */
static lig_status confirmed(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    ligi_row_state state = ligi_tables_state(steward->tables, entry);
    int more = ligi_tables_has_pending(steward->tables, entry);

    settle(steward, entry, more);
    if (state == LIGI_ROW_COPY)
        return more ? ligi_entries_add(&steward->dirty, &entry, 1) : LIG_OK;
    if (state == LIGI_ROW_DRAINING)
        LIG_TRY(ligi_steward_send_delta(steward, entry));
    if (mark->flags & LIGI_MARK_LEAVING)
        LIG_TRY(tell_drop(steward, entry));
    if (state == LIGI_ROW_ABSENT && ligi_steward_cares(steward, entry))
        return ligi_steward_want(steward, entry);
    return LIG_OK;
}

static lig_status taken(ligi_steward *steward, const ligi_item *item, ligi_entry entry)
{
    if (item->number != steward->marks[entry].number ||
        !ligi_tables_has_sent(steward->tables, entry))
        return LIG_OK;
    ligi_tables_confirm(steward->tables, entry);
    return confirmed(steward, entry);
}

static lig_status fresh(ligi_steward *steward, const ligi_incoming *incoming, const ligi_item *item,
                        ligi_entry entry)
{
    int included = item->number == steward->marks[entry].number &&
                   ligi_tables_has_sent(steward->tables, entry);
    ligi_row_state state = ligi_tables_state(steward->tables, entry);

    if (state == LIGI_ROW_DRAINING)
        return taken(steward, item, entry);
    if (state != LIGI_ROW_COPY ||
        item->extra != (uint32_t)ligi_tables_place(steward->tables, entry).moves)
        return LIG_OK; /* of a copy that was given up meanwhile */
    LIG_TRY(ligi_tables_install_copy(steward->tables, entry, incoming->row, included));
    return included ? confirmed(steward, entry) : LIG_OK;
}

static lig_status unexpected(const ligi_incoming *incoming, const ligi_item *item)
{
    return lig_fail(LIG_E_CORRUPT, "node %u sent the row of key %lld to one who has it",
                    incoming->from, (long long)item->key);
}

static void answered(ligi_steward *steward, ligi_mark *mark)
{
    if (!(mark->flags & LIGI_MARK_WANTED))
        return;
    mark->flags &= (uint16_t)~LIGI_MARK_WANTED;
    count_wants(steward, UINT64_MAX);
}

/* Interest that ended meanwhile is told by giving the copy back. */
static lig_status copied(ligi_steward *steward, const ligi_incoming *incoming,
                         const ligi_item *item, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];

    if (ligi_tables_state(steward->tables, entry) != LIGI_ROW_ABSENT)
        return unexpected(incoming, item);
    answered(steward, mark);
    ligi_tables_place_update(steward->tables, entry, (ligi_place){incoming->from, item->number});
    if (!ligi_steward_cares(steward, entry))
        return ligi_steward_tell(steward, incoming->from, LIGI_ITEM_DROP, entry, item->number);
    steward->counts.replications++;
    mark->flags |= LIGI_MARK_COPY;
    LIG_TRY(ligi_tables_install_copy(steward->tables, entry, incoming->row, 0));
    return ligi_steward_watch(steward, entry);
}

static lig_status moved(ligi_steward *steward, const ligi_incoming *incoming, const ligi_item *item,
                        ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    uint32_t home = ligi_tables_home(steward->tables, item->key);

    if (ligi_tables_state(steward->tables, entry) == LIGI_ROW_OWNED ||
        item->number <= ligi_tables_place(steward->tables, entry).moves)
        return unexpected(incoming, item);
    LIG_TRY(ligi_tables_install_owned(steward->tables, entry, item->number, incoming->row, 0));
    answered(steward, mark);
    mark->flags &= (uint16_t)~(LIGI_MARK_LEAVING | LIGI_MARK_COPY);
    mark->flags |= LIGI_MARK_OWNED;
    mark->others = 0;
    mark->arrived = (uint16_t)steward->round;
    settle(steward, entry, 0);
    steward->counts.relocations_in++;
    if (home == steward->rank || home == incoming->from)
        return LIG_OK;
    return ligi_steward_tell(steward, home, LIGI_ITEM_HERE, entry, item->number);
}

lig_status ligi_steward_from_owner(ligi_steward *steward, const ligi_incoming *incoming,
                                   const ligi_item *item, ligi_entry entry)
{
    switch (item->kind) {
    case LIGI_ITEM_MOVED: return moved(steward, incoming, item, entry);
    case LIGI_ITEM_COPIED: return copied(steward, incoming, item, entry);
    case LIGI_ITEM_FRESH: return fresh(steward, incoming, item, entry);
    default: return taken(steward, item, entry);
    }
}
