#include "params/placement/placement_owner.h"

#include "params/placement/placement.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

#include <string.h>

static ligi_item item_of(const ligi_steward *steward, ligi_item_kind kind, ligi_entry entry,
                         uint64_t number)
{
    return (ligi_item){.key = ligi_tables_key(steward->tables, entry),
                       .number = number,
                       .kind = (uint16_t)kind,
                       .flags = LIGI_ITEM_ROW,
                       .extra = (uint32_t)ligi_tables_place(steward->tables, entry).moves};
}

static ligi_address news_to(const ligi_steward *steward, uint32_t node)
{
    return (ligi_address){.to = node, .kind = LIGI_LETTER_NEWS, .origin = steward->rank};
}

/* Shared before it is read: what is written in between is noted, and told. */
static lig_status copy_to(ligi_steward *steward, ligi_entry entry, ligi_subscriber *one)
{
    ligi_address address = news_to(steward, one->node);
    size_t bytes = ligi_tables_body_bytes(steward->tables, entry);
    uint64_t moves = ligi_tables_place(steward->tables, entry).moves;
    ligi_item item = item_of(steward, LIGI_ITEM_COPIED, entry, moves);
    void *row;

    LIG_TRY(ligi_courier_room(&steward->courier, &address, bytes, &row));
    ligi_tables_share(steward->tables, entry, 1);
    ligi_tables_get_body(steward->tables, entry, row);
    ligi_courier_add(&steward->courier, one->node, &item, bytes);
    one->has_copy = 1;
    steward->news++;
    return LIG_OK;
}

/* Who else waits for it, waits there from now on. */
static lig_status send_after(ligi_steward *steward, ligi_entry entry, uint32_t to)
{
    ligi_mark *mark = &steward->marks[entry];
    ligi_subscriber *one;

    while ((one = ligi_subscribers_at(&steward->subscribers, mark->others)) != NULL) {
        const ligi_address address = {.to = to, .kind = LIGI_LETTER_SYNC, .origin = one->node};
        const ligi_item item = {.key = ligi_tables_key(steward->tables, entry),
                                .kind = LIGI_ITEM_WANT};
        LIG_TRY(ligi_courier_say(&steward->courier, &address, &item));
        ligi_subscribers_remove(&steward->subscribers, &mark->others, one->node);
    }
    return LIG_OK;
}

/* The row itself, to a node that knows of all it had pushed to a copy, if it had one. */
static lig_status give_row(ligi_steward *steward, ligi_entry entry, uint32_t to)
{
    ligi_address address = news_to(steward, to);
    size_t bytes = ligi_tables_body_bytes(steward->tables, entry);
    void *row;

    LIG_TRY(ligi_courier_room(&steward->courier, &address, bytes, &row));
    uint64_t moves = ligi_tables_leave(steward->tables, entry, to, row);
    steward->marks[entry].flags &= (uint16_t)~LIGI_MARK_OWNED;
    const ligi_item item = {.key = ligi_tables_key(steward->tables, entry),
                            .number = moves,
                            .kind = LIGI_ITEM_MOVED,
                            .flags = LIGI_ITEM_ROW,
                            .extra = (uint32_t)moves};
    ligi_courier_add(&steward->courier, to, &item, bytes);
    steward->counts.relocations_out++;
    return LIG_OK;
}

static lig_status move_to(ligi_steward *steward, ligi_entry entry, const ligi_subscriber *one)
{
    uint32_t to = one->node;

    if (one->number != one->told)
        LIG_TRY(ligi_steward_tell(steward, to, LIGI_ITEM_TAKEN, entry, one->number));
    LIG_TRY(give_row(steward, entry, to));
    ligi_subscribers_remove(&steward->subscribers, &steward->marks[entry].others, to);
    return send_after(steward, entry, to);
}

static lig_status rest(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];

    if (mark->flags & LIGI_MARK_RESTING)
        return LIG_OK;
    LIG_TRY(ligi_entries_add(&steward->resting, &entry, 1));
    mark->flags |= LIGI_MARK_RESTING;
    return LIG_OK;
}

static ligi_policy_act choose(ligi_steward *steward, ligi_entry entry, uint32_t other_count,
                              int has_copy)
{
    const ligi_policy_view view = {
        .techniques = steward->techniques,
        .copyable = ligi_tables_copyable(steward->tables, entry),
        .own = ligi_steward_cares(steward, entry),
        .other_count = other_count,
        .has_copy = has_copy,
        .rested = (uint16_t)(steward->round - steward->marks[entry].arrived),
    };

    return ligi_policy(&view);
}

static lig_status decide(ligi_steward *steward, ligi_entry entry, ligi_subscriber *one)
{
    uint32_t others = steward->marks[entry].others;
    uint32_t count = ligi_subscribers_count(&steward->subscribers, others);

    switch (choose(steward, entry, count - 1, one->has_copy != 0)) {
    case LIGI_POLICY_COPY: return copy_to(steward, entry, one);
    case LIGI_POLICY_MOVE: return move_to(steward, entry, one);
    case LIGI_POLICY_LATER: return rest(steward, entry);
    default: return LIG_OK;
    }
}

lig_status ligi_steward_consider(ligi_steward *steward, ligi_entry entry)
{
    ligi_subscriber *first =
        ligi_subscribers_at(&steward->subscribers, steward->marks[entry].others);

    return first == NULL ? LIG_OK : decide(steward, entry, first);
}

static lig_status wanted(ligi_steward *steward, const ligi_incoming *incoming,
                         const ligi_item *item, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    uint32_t origin = incoming->letter->origin, hops = incoming->letter->hops;
    ligi_subscriber *one;

    if (origin == steward->rank)
        return LIG_OK; /* the row has come meanwhile */
    if (ligi_tables_state(steward->tables, entry) == LIGI_ROW_OWNED) {
        /* Mostly nobody else has asked: it goes without ever having been one of several. */
        if (mark->others == 0 && choose(steward, entry, 0, 0) == LIGI_POLICY_MOVE)
            return give_row(steward, entry, origin);
        if (ligi_subscribers_find(&steward->subscribers, mark->others, origin) != NULL)
            return LIG_OK;
        LIG_TRY(ligi_subscribers_add(&steward->subscribers, &mark->others, origin, &one));
        LIG_TRY(decide(steward, entry, one));
        return mark->others != 0 ? ligi_steward_watch(steward, entry) : LIG_OK;
    }
    ligi_place place = ligi_tables_place(steward->tables, entry);
    if (place.node == steward->rank)
        return lig_fail(LIG_E_INTERNAL, "key %lld is thought to be where it is not",
                        (long long)item->key);
    steward->counts.forwarded++;
    const ligi_address address = {.to = place.node,
                                  .kind = LIGI_LETTER_SYNC,
                                  .origin = origin,
                                  .hops = (uint8_t)(hops < LIGI_LETTER_HOPS_MAX ? hops + 1 : hops)};
    return ligi_courier_say(&steward->courier, &address, item);
}

static lig_status dropped(ligi_steward *steward, uint32_t from, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    ligi_subscriber *one = ligi_subscribers_find(&steward->subscribers, mark->others, from);

    if (one->number != one->told)
        LIG_TRY(ligi_steward_tell(steward, from, LIGI_ITEM_TAKEN, entry, one->number));
    ligi_subscribers_remove(&steward->subscribers, &mark->others, from);
    if (ligi_subscribers_copies(&steward->subscribers, mark->others) == 0)
        ligi_tables_share(steward->tables, entry, 0);
    return ligi_steward_consider(steward, entry);
}

lig_status ligi_steward_to_owner(ligi_steward *steward, const ligi_incoming *incoming,
                                 const ligi_item *item, ligi_entry entry)
{
    if (item->kind == LIGI_ITEM_WANT)
        return wanted(steward, incoming, item, entry);
    uint32_t moves = item->kind == LIGI_ITEM_DROP ? (uint32_t)item->number : item->extra;
    if (ligi_tables_state(steward->tables, entry) != LIGI_ROW_OWNED ||
        moves != (uint32_t)ligi_tables_place(steward->tables, entry).moves)
        return LIG_OK; /* it has gone to the one who says this, and was made with this */
    ligi_subscriber *one =
        ligi_subscribers_find(&steward->subscribers, steward->marks[entry].others, incoming->from);
    if (one == NULL || !one->has_copy || incoming->letter->origin != incoming->from)
        return lig_fail(LIG_E_CORRUPT, "node %u speaks of a copy of key %lld, and has none",
                        incoming->from, (long long)item->key);
    if (item->kind == LIGI_ITEM_DROP)
        return dropped(steward, incoming->from, entry);
    one->number = item->number;
    if (ligi_tables_add_delta(steward->tables, entry, incoming->row))
        return ligi_entries_add(&steward->dirty, &entry, 1);
    return LIG_OK;
}

/* Reads the row once, for the first, and copies it for the others. */
lig_status ligi_steward_refresh(ligi_steward *steward, ligi_entry entry)
{
    size_t bytes = ligi_tables_body_bytes(steward->tables, entry);
    void *row, *first = NULL;

    for (ligi_subscriber *one =
             ligi_subscribers_at(&steward->subscribers, steward->marks[entry].others);
         one != NULL; one = ligi_subscribers_at(&steward->subscribers, one->next)) {
        ligi_address address = news_to(steward, one->node);
        ligi_item item = item_of(steward, LIGI_ITEM_FRESH, entry, one->number);
        if (!one->has_copy)
            continue;
        LIG_TRY(ligi_courier_room(&steward->courier, &address, bytes, &row));
        if (first == NULL && !ligi_tables_take_fresh(steward->tables, entry, row))
            return LIG_OK;
        if (first != NULL)
            memcpy(row, first, bytes);
        first = row;
        ligi_courier_add(&steward->courier, one->node, &item, bytes);
        one->told = one->number;
        steward->news++;
    }
    return LIG_OK;
}

lig_status ligi_steward_written_by(ligi_steward *steward, ligi_entry entry, uint32_t origin)
{
    ligi_subscriber *one =
        ligi_subscribers_find(&steward->subscribers, steward->marks[entry].others, origin);
    void *row;

    if (one == NULL || !one->has_copy)
        return LIG_OK;
    ligi_address address = news_to(steward, origin);
    ligi_item item = item_of(steward, LIGI_ITEM_FRESH, entry, one->number);
    size_t bytes = ligi_tables_body_bytes(steward->tables, entry);
    LIG_TRY(ligi_courier_room(&steward->courier, &address, bytes, &row));
    ligi_tables_get_body(steward->tables, entry, row);
    ligi_courier_add(&steward->courier, origin, &item, bytes);
    one->told = one->number;
    steward->news++;
    return ligi_courier_send(&steward->courier);
}
