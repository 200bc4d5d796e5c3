#include "params/placement/owner_protocol.h"

#include "params/placement/placement.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <string.h>

static ligi_sync_item item_of(const ligi_placement *placement, ligi_sync_item_kind kind,
                              ligi_entry entry, uint64_t number)
{
    return (ligi_sync_item){.key = ligi_tables_key(placement->tables, entry),
                            .number = number,
                            .kind = (uint16_t)kind,
                            .flags = LIGI_ITEM_ROW,
                            .extra =
                                (uint32_t)ligi_tables_location(placement->tables, entry).moves};
}

static ligi_sync_address updates_to(const ligi_placement *placement, uint32_t node)
{
    return (ligi_sync_address){.to = node, .kind = LIGI_PARAMS_UPDATE, .origin = placement->rank};
}

/* Marked shared before it is read: a write in between is noted and sent. */
static lig_status copy_to(ligi_placement *placement, ligi_entry entry, ligi_subscriber *one)
{
    ligi_sync_address address = updates_to(placement, one->node);
    size_t bytes = ligi_tables_body_bytes(placement->tables, entry);
    uint64_t moves = ligi_tables_location(placement->tables, entry).moves;
    ligi_sync_item item = item_of(placement, LIGI_ITEM_REPLICA, entry, moves);
    void *row;

    assert(!one->has_replica && one->node != placement->rank);
    LIG_TRY(ligi_sync_send_reserve(&placement->sender, &address, bytes, &row));
    ligi_tables_share(placement->tables, entry, 1);
    ligi_tables_get_body(placement->tables, entry, row);
    ligi_sync_send_add(&placement->sender, one->node, &item, bytes);
    one->has_replica = 1;
    placement->updates++;
    return LIG_OK;
}

/* Nodes that still wait for the row now wait at its new owner. */
static lig_status send_after(ligi_placement *placement, ligi_entry entry, uint32_t to)
{
    ligi_mark *mark = &placement->marks[entry];
    ligi_subscriber *one;

    while ((one = ligi_subscribers_at(&placement->subscribers, mark->others)) != NULL) {
        const ligi_sync_address address = {.to = to, .kind = LIGI_PARAMS_SYNC, .origin = one->node};
        const ligi_sync_item item = {.key = ligi_tables_key(placement->tables, entry),
                                     .kind = LIGI_ITEM_WANT};
        assert(!one->has_replica); /* the row stays where it is while there are replicas */
        LIG_TRY(ligi_sync_send_item(&placement->sender, &address, &item));
        ligi_subscribers_remove(&placement->subscribers, &mark->others, one->node);
    }
    return LIG_OK;
}

/* The row itself, to a node that has confirmed all pushes to its replica, if it had one. */
static lig_status give_row(ligi_placement *placement, ligi_entry entry, uint32_t to)
{
    ligi_sync_address address = updates_to(placement, to);
    size_t bytes = ligi_tables_body_bytes(placement->tables, entry);
    void *row;

    assert(to != placement->rank && ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED);
    LIG_TRY(ligi_sync_send_reserve(&placement->sender, &address, bytes, &row));
    uint64_t moves = ligi_tables_leave(placement->tables, entry, to, row);
    placement->marks[entry].flags &= (uint16_t)~LIGI_MARK_OWNED;
    const ligi_sync_item item = {.key = ligi_tables_key(placement->tables, entry),
                                 .number = moves,
                                 .kind = LIGI_ITEM_RELOCATED,
                                 .flags = LIGI_ITEM_ROW,
                                 .extra = (uint32_t)moves};
    ligi_sync_send_add(&placement->sender, to, &item, bytes);
    placement->counts.relocations_out++;
    return LIG_OK;
}

static lig_status move_to(ligi_placement *placement, ligi_entry entry, const ligi_subscriber *one)
{
    uint32_t to = one->node;

    if (one->number != one->told)
        LIG_TRY(ligi_placement_send_item(placement, to, LIGI_ITEM_TAKEN, entry, one->number));
    assert(ligi_subscribers_replicas(&placement->subscribers, placement->marks[entry].others) ==
           (one->has_replica != 0));
    LIG_TRY(give_row(placement, entry, to));
    ligi_subscribers_remove(&placement->subscribers, &placement->marks[entry].others, to);
    return send_after(placement, entry, to);
}

static lig_status rest(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];

    if (mark->flags & LIGI_MARK_RESTING)
        return LIG_OK;
    assert(mark->others != 0); /* another node waits for the row */
    LIG_TRY(ligi_entries_add(&placement->resting, &entry, 1));
    mark->flags |= LIGI_MARK_RESTING;
    return LIG_OK;
}

static ligi_placement_policy_act choose(ligi_placement *placement, ligi_entry entry,
                                        uint32_t other_count, int has_replica)
{
    const ligi_placement_policy_view view = {
        .techniques = placement->techniques,
        .replicable = ligi_tables_replicable(placement->tables, entry),
        .own = ligi_placement_is_interested(placement, entry),
        .other_count = other_count,
        .has_replica = has_replica,
        .rested = (uint16_t)(placement->round - placement->marks[entry].arrived),
    };

    return ligi_placement_policy(&view);
}

static lig_status decide(ligi_placement *placement, ligi_entry entry, ligi_subscriber *one)
{
    uint32_t others = placement->marks[entry].others;
    uint32_t count = ligi_subscribers_count(&placement->subscribers, others);

    switch (choose(placement, entry, count - 1, one->has_replica != 0)) {
    case LIGI_POLICY_REPLICATE: return copy_to(placement, entry, one);
    case LIGI_POLICY_RELOCATE: return move_to(placement, entry, one);
    case LIGI_POLICY_LATER: return rest(placement, entry);
    default: return LIG_OK;
    }
}

lig_status ligi_placement_consider(ligi_placement *placement, ligi_entry entry)
{
    ligi_subscriber *first =
        ligi_subscribers_at(&placement->subscribers, placement->marks[entry].others);

    return first == NULL ? LIG_OK : decide(placement, entry, first);
}

static lig_status wanted(ligi_placement *placement, const ligi_placement_incoming *incoming,
                         const ligi_sync_item *item, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    uint32_t origin = incoming->message->origin, hops = incoming->message->hops;
    ligi_subscriber *one;

    if (origin == placement->rank)
        return LIG_OK; /* the row has arrived meanwhile */
    if (ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED) {
        /* The common case: no other node has requested the row, so it was never shared. */
        if (mark->others == 0 && choose(placement, entry, 0, 0) == LIGI_POLICY_RELOCATE)
            return give_row(placement, entry, origin);
        if (ligi_subscribers_find(&placement->subscribers, mark->others, origin) != NULL)
            return LIG_OK;
        LIG_TRY(ligi_subscribers_add(&placement->subscribers, &mark->others, origin, &one));
        LIG_TRY(decide(placement, entry, one));
        return mark->others != 0 ? ligi_placement_watch(placement, entry) : LIG_OK;
    }
    ligi_row_location location = ligi_tables_location(placement->tables, entry);
    if (location.node == placement->rank)
        return lig_fail(LIG_E_INTERNAL, "no route to key %lld: it was forwarded too often",
                        (long long)item->key);
    placement->counts.forwarded++;
    const ligi_sync_address address = {
        .to = location.node,
        .kind = LIGI_PARAMS_SYNC,
        .origin = origin,
        .hops = (uint8_t)(hops < LIGI_PARAMS_HOPS_MAX ? hops + 1 : hops)};
    return ligi_sync_send_item(&placement->sender, &address, item);
}

static lig_status dropped(ligi_placement *placement, uint32_t from, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    ligi_subscriber *one = ligi_subscribers_find(&placement->subscribers, mark->others, from);

    assert(one != NULL && one->has_replica); /* the caller has checked it */
    if (one->number != one->told)
        LIG_TRY(ligi_placement_send_item(placement, from, LIGI_ITEM_TAKEN, entry, one->number));
    ligi_subscribers_remove(&placement->subscribers, &mark->others, from);
    if (ligi_subscribers_replicas(&placement->subscribers, mark->others) == 0)
        ligi_tables_share(placement->tables, entry, 0);
    return ligi_placement_consider(placement, entry);
}

lig_status ligi_placement_to_owner(ligi_placement *placement,
                                   const ligi_placement_incoming *incoming,
                                   const ligi_sync_item *item, ligi_entry entry)
{
    if (item->kind == LIGI_ITEM_WANT)
        return wanted(placement, incoming, item, entry);
    uint32_t moves = item->kind == LIGI_ITEM_DROP ? (uint32_t)item->number : item->extra;
    if (ligi_tables_state(placement->tables, entry) != LIGI_ROW_OWNED ||
        moves != (uint32_t)ligi_tables_location(placement->tables, entry).moves)
        return LIG_OK; /* it was relocated to the sender, including this delta */
    ligi_subscriber *one = ligi_subscribers_find(&placement->subscribers,
                                                 placement->marks[entry].others, incoming->from);
    if (one == NULL || !one->has_replica || incoming->message->origin != incoming->from)
        return lig_fail(
            LIG_E_CORRUPT,
            "protocol error: node %u refers to a replica of key %lld that it does not have",
            incoming->from, (long long)item->key);
    if (item->kind == LIGI_ITEM_DROP)
        return dropped(placement, incoming->from, entry);
    one->number = item->number;
    if (ligi_tables_add_delta(placement->tables, entry, incoming->row))
        return ligi_entries_add(&placement->dirty, &entry, 1);
    return LIG_OK;
}

/* Reads the row once, for the first replica, and copies it for the others. */
lig_status ligi_placement_refresh(ligi_placement *placement, ligi_entry entry)
{
    size_t bytes = ligi_tables_body_bytes(placement->tables, entry);
    void *row, *first = NULL;

    for (ligi_subscriber *one =
             ligi_subscribers_at(&placement->subscribers, placement->marks[entry].others);
         one != NULL; one = ligi_subscribers_at(&placement->subscribers, one->next)) {
        ligi_sync_address address = updates_to(placement, one->node);
        ligi_sync_item item = item_of(placement, LIGI_ITEM_FRESH, entry, one->number);
        if (!one->has_replica)
            continue;
        LIG_TRY(ligi_sync_send_reserve(&placement->sender, &address, bytes, &row));
        if (first == NULL && !ligi_tables_take_fresh(placement->tables, entry, row))
            return LIG_OK;
        if (first != NULL)
            memcpy(row, first, bytes);
        first = row;
        ligi_sync_send_add(&placement->sender, one->node, &item, bytes);
        assert(ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED);
        one->told = one->number;
        placement->updates++;
    }
    return LIG_OK;
}

lig_status ligi_placement_written_by(ligi_placement *placement, ligi_entry entry, uint32_t origin)
{
    ligi_subscriber *one =
        ligi_subscribers_find(&placement->subscribers, placement->marks[entry].others, origin);
    void *row;

    if (one == NULL || !one->has_replica)
        return LIG_OK;
    ligi_sync_address address = updates_to(placement, origin);
    ligi_sync_item item = item_of(placement, LIGI_ITEM_FRESH, entry, one->number);
    size_t bytes = ligi_tables_body_bytes(placement->tables, entry);
    LIG_TRY(ligi_sync_send_reserve(&placement->sender, &address, bytes, &row));
    ligi_tables_get_body(placement->tables, entry, row);
    ligi_sync_send_add(&placement->sender, origin, &item, bytes);
    assert(ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED);
    one->told = one->number;
    placement->updates++;
    return ligi_sync_send_flush(&placement->sender);
}
