/* One node's part in relocation and replication: received items, changes of interest, rounds. */
#include "params/placement/placement.h"

#include "params/placement/owner_protocol.h"
#include "params/placement/replica_protocol.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST ((UINT64_C(1) << 48) - 2) /* the most that a location can store */

#define HEAVY_BYTES (UINT64_C(64) << 10)
#define HEAVY_NS INT64_C(50000) /* as many bytes on a slow network */

#define IS_HERE (LIGI_MARK_REPLICA | LIGI_MARK_OWNED)

enum { AHEAD_ENTRY = 32, BLOCK = 16 }; /* entries that are prefetched before they are used */

lig_status ligi_placement_init(ligi_placement *placement, const ligi_placement_options *options)
{
    uint64_t body = ligi_tables_body_bytes_max(options->tables),
             delta = ligi_tables_delta_bytes_max(options->tables);
    void *marks = ligi_tables_entry_infos(options->tables);

    *placement = (ligi_placement){.tables = options->tables,
                                  .rank = options->rank,
                                  .node_count = options->node_count,
                                  .techniques = options->techniques,
                                  .round = LIGI_POLICY_REST,
                                  .marks = marks};
    return ligi_sync_send_init(&placement->sender, &options->send_ops, options->node_count,
                               body > delta ? body : delta);
}

void ligi_placement_fini(ligi_placement *placement)
{
    ligi_sync_send_fini(&placement->sender);
    ligi_interests_fini(&placement->interests);
    ligi_subscribers_fini(&placement->subscribers);
    free(placement->lapsed.items);
    free(placement->dirty.items);
    free(placement->resting.items);
}

lig_status ligi_entries_add(ligi_entries *entries, const ligi_entry *items, size_t count)
{
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_grow(&entries->items, &entries->capacity, entries->count + count,
                      sizeof *entries->items, "a list of keys"));
    memcpy(entries->items + entries->count, items, count * sizeof *items);
    entries->count += count;
    return LIG_OK;
}

lig_status ligi_placement_send_item(ligi_placement *placement, uint32_t to,
                                    ligi_sync_item_kind kind, ligi_entry entry, uint64_t number)
{
    const ligi_sync_item item = {
        .key = ligi_tables_key(placement->tables, entry), .number = number, .kind = (uint16_t)kind};
    const ligi_sync_address address = {.to = to,
                                       .kind = kind == LIGI_ITEM_HERE        ? LIGI_PARAMS_LOCATION
                                               : kind >= LIGI_ITEM_RELOCATED ? LIGI_PARAMS_UPDATE
                                                                             : LIGI_PARAMS_SYNC,
                                       .origin = placement->rank};

    return ligi_sync_send_item(&placement->sender, &address, &item);
}

/* --- received items --- */

/* Bytes of the row that comes with an item of this kind. */
static uint64_t row_bytes(const ligi_placement *placement, uint32_t kind, ligi_entry entry)
{
    switch (kind) {
    case LIGI_ITEM_DELTA: return ligi_tables_delta_bytes(placement->tables, entry);
    case LIGI_ITEM_RELOCATED:
    case LIGI_ITEM_REPLICA:
    case LIGI_ITEM_FRESH: return ligi_tables_body_bytes(placement->tables, entry);
    default: return 0;
    }
}

static int belongs(uint32_t message, uint32_t item)
{
    switch (message) {
    case LIGI_PARAMS_SYNC: return item >= LIGI_ITEM_WANT && item <= LIGI_ITEM_DELTA;
    case LIGI_PARAMS_UPDATE: return item >= LIGI_ITEM_RELOCATED && item <= LIGI_ITEM_TAKEN;
    case LIGI_PARAMS_LOCATION: return item == LIGI_ITEM_HERE;
    default: return 0;
    }
}

static lig_status one_arrived(ligi_placement *placement, const ligi_placement_incoming *incoming,
                              const ligi_sync_item *item, ligi_entry entry)
{
    if (incoming->message->kind == LIGI_PARAMS_SYNC)
        return ligi_placement_to_owner(placement, incoming, item, entry);
    if (incoming->message->kind == LIGI_PARAMS_UPDATE)
        return ligi_placement_from_owner(placement, incoming, item, entry);
    if (ligi_tables_state(placement->tables, entry) ==
        LIGI_ROW_ABSENT) /* otherwise a newer location is known */
        ligi_tables_location_update(placement->tables, entry,
                                    (ligi_row_location){incoming->from, item->number});
    return LIG_OK;
}

static void meet_mark(const ligi_placement *placement, uint64_t entry)
{
    if (entry < ligi_tables_entry_limit(placement->tables))
        (void)*(const volatile uint16_t *)&placement->marks[entry].flags;
}

/* Dense keys are entries; looking up hashed ones takes as long as waiting for them. */
static void fetch_block(const ligi_placement *placement, const ligi_sync_item *items, uint32_t at,
                        uint32_t count)
{
    const ligi_tables *tables = placement->tables;
    uint32_t first = at == 0 ? 0 : BLOCK;

    if (at % BLOCK != 0 || ligi_tables_hashed(tables))
        return;
    for (uint32_t i = at + 3 * first; i < at + 4 * BLOCK && i < count; i++)
        meet_mark(placement, (uint64_t)items[i].key);
    for (uint32_t i = at + 2 * first; i < at + 3 * BLOCK && i < count; i++)
        ligi_tables_meet_word(tables, (uint64_t)items[i].key);
    for (uint32_t i = at + first; i < at + 2 * BLOCK && i < count; i++)
        ligi_tables_meet_row(tables, (uint64_t)items[i].key);
    for (uint32_t i = at + first; i < at + 2 * BLOCK && i < count; i++)
        ligi_tables_fetch_row(tables, (uint64_t)items[i].key);
}

lig_status ligi_placement_arrived(ligi_placement *placement, uint32_t from,
                                  const ligi_params_message *message,
                                  const ligi_params_parts *parts)
{
    ligi_placement_incoming incoming = {.from = from, .message = message, .row = parts->rows};
    uint64_t left = parts->rows_bytes;

    if (message->kind == LIGI_PARAMS_SYNC && message->origin >= placement->node_count)
        return lig_fail(LIG_E_CORRUPT,
                        "node %u sent an item on behalf of node %u, which does not exist", from,
                        message->origin);
    for (uint32_t i = 0; i < message->count; i++) {
        ligi_sync_item item; /* the peer may change the payload during the check */
        ligi_entry entry;
        memcpy(&item, &parts->items[i], sizeof item);
        fetch_block(placement, parts->items, i, message->count);
        lig_status status = ligi_tables_entry(placement->tables, item.key, &entry);
        if (status == LIG_E_LIMIT && message->kind == LIGI_PARAMS_SYNC &&
            item.kind == LIGI_ITEM_WANT)
            continue; /* a hint: an access of the key reports that the table is full */
        LIG_TRY(status);
        uint64_t bytes = row_bytes(placement, item.kind, entry);
        if (!belongs(message->kind, item.kind) || bytes > left || item.number > NUMBER_MOST)
            return lig_fail(LIG_E_CORRUPT, "invalid item from node %u: kind %u, key %lld", from,
                            item.kind, (long long)item.key);
        LIG_TRY(one_arrived(placement, &incoming, &item, entry));
        incoming.row += bytes;
        left -= bytes;
    }
    if (left != 0)
        return lig_fail(LIG_E_CORRUPT, "node %u sent %llu trailing bytes", from,
                        (unsigned long long)left);
    return ligi_sync_send_flush(&placement->sender);
}

/* --- interest --- */

static void fetch_marks(const ligi_placement *placement, const ligi_intent_segment *segment,
                        uint32_t i)
{
    uint32_t from = i == 0 ? 0 : i + AHEAD_ENTRY - 1, to = i + AHEAD_ENTRY;

    for (; from < to && from < segment->count; from++)
        __builtin_prefetch(&placement->marks[segment->entries[from]], 1);
}

static void fetch_unknown(const ligi_placement *placement, const ligi_intent_segment *segment,
                          uint32_t i)
{
    if (i % BLOCK != 0)
        return;
    for (uint32_t at = i; at < i + BLOCK && at < segment->count; at++)
        if (!(placement->marks[segment->entries[at]].flags & IS_HERE))
            ligi_tables_meet_word(placement->tables, segment->entries[at]);
}

lig_status ligi_placement_watch(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];
    ligi_ending *ending = ligi_interests_first(&placement->interests, &mark->interest);

    if (mark->flags & LIGI_MARK_WATCHED || ending == NULL)
        return LIG_OK;
    LIG_TRY(ligi_grow(&ending->watch.items, &ending->watch.room, ending->watch.count + 1,
                      sizeof *ending->watch.items, "a list of keys"));
    assert(ending->number != 0);
    ending->watch.items[ending->watch.count++] = entry;
    mark->flags |= LIGI_MARK_WATCHED;
    return LIG_OK;
}

/* The entry becomes wanted. */
static lig_status gained_interest(ligi_placement *placement, ligi_entry entry)
{
    ligi_row_state state = ligi_tables_state(placement->tables, entry);

    assert(state != LIGI_ROW_REPLICA); /* those are marked */
    if (state == LIGI_ROW_OWNED)
        placement->marks[entry].flags |= LIGI_MARK_OWNED;
    return state == LIGI_ROW_ABSENT ? ligi_placement_want(placement, entry) : LIG_OK;
}

static lig_status open_ending(ligi_placement *placement, uint32_t worker,
                              ligi_intent_segment *segment)
{
    if (segment->ending != 0)
        return LIG_OK;
    if (ligi_interests_stale(&placement->interests)) {
        uint64_t count = ligi_tables_entry_limit(placement->tables);
        for (uint64_t i = 0; i < count; i++)
            ligi_interests_renumber(&placement->interests, &placement->marks[i].interest);
        ligi_interests_renew(&placement->interests);
    }
    return ligi_interests_open(&placement->interests, worker, segment->end, &segment->ending);
}

uint64_t ligi_placement_weight(const ligi_placement *placement, ligi_entry entry)
{
    return 1 + ligi_tables_body_bytes(placement->tables, entry) / HEAVY_BYTES;
}

int64_t ligi_placement_transfer_ns(const ligi_placement *placement)
{
    return (int64_t)placement->heavy * HEAVY_NS;
}

static void spend(size_t *budget, uint64_t weight)
{
    *budget -= weight < *budget ? weight : *budget;
}

lig_status ligi_placement_begin(ligi_placement *placement, uint32_t worker,
                                ligi_intent_segment *segment, size_t *budget, int *through)
{
    uint32_t i = segment->done;

    LIG_TRY(open_ending(placement, worker, segment));
    const ligi_ending *ending = ligi_interests_at(&placement->interests, segment->ending);
    assert(ending != NULL && segment->done <= segment->count);
    for (; i < segment->count && *budget > 0; i++) {
        ligi_entry entry = segment->entries[i];
        uint64_t heavy = placement->heavy;
        int gained;
        fetch_marks(placement, segment, i);
        fetch_unknown(placement, segment, i);
        ligi_mark *mark = &placement->marks[entry];
        LIG_TRY(ligi_interests_add(&placement->interests, &mark->interest, ending, &gained));
        if (gained && !(mark->flags & IS_HERE))
            LIG_TRY(gained_interest(placement, entry));
        if (mark->flags & LIGI_MARK_REPLICA || mark->others != 0)
            LIG_TRY(ligi_placement_watch(placement, entry));
        spend(budget, 1 + placement->heavy - heavy);
    }
    *through = i == segment->count;
    segment->done = i;
    return LIG_OK;
}

/* No worker of this node is interested in the entry any more. Rows still on their way are handled
 * when they arrive. */
static lig_status lost_interest(ligi_placement *placement, ligi_entry entry)
{
    const ligi_mark *mark = &placement->marks[entry];

    if (mark->flags & LIGI_MARK_REPLICA)
        return ligi_placement_give_up(placement, entry);
    return mark->others != 0 ? ligi_placement_consider(placement, entry) : LIG_OK;
}

static lig_status lapse(ligi_placement *placement, ligi_entry entry)
{
    ligi_mark *mark = &placement->marks[entry];

    assert(mark->flags & LIGI_MARK_WATCHED);
    mark->flags &= (uint16_t)~LIGI_MARK_WATCHED;
    if (!ligi_placement_is_interested(placement, entry))
        return lost_interest(placement, entry);
    return mark->flags & LIGI_MARK_REPLICA || mark->others != 0
               ? ligi_placement_watch(placement, entry)
               : LIG_OK;
}

lig_status ligi_placement_end(ligi_placement *placement, ligi_intent_segment *segment,
                              size_t *budget, int *through)
{
    ligi_ending *ending = ligi_interests_at(&placement->interests, segment->ending);
    ligi_entries *lapsed = &placement->lapsed;

    if (ending != NULL) {
        LIG_TRY(ligi_entries_add(lapsed, ending->watch.items, ending->watch.count));
        ligi_interests_close(&placement->interests, ending);
        assert(segment->ending == 0);
    }
    for (; lapsed->count > 0 && *budget > 0; (*budget)--)
        LIG_TRY(lapse(placement, lapsed->items[--lapsed->count]));
    *through = lapsed->count == 0;
    return LIG_OK;
}

/* --- rounds --- */

lig_status ligi_placement_note(ligi_placement *placement, const ligi_entry *noted, size_t count)
{
    LIG_TRY(ligi_entries_add(&placement->dirty, noted, count));
    for (size_t i = 0; i < count; i++) {
        assert(noted[i] < ligi_tables_entry_limit(placement->tables));
        if (ligi_tables_has_pending(placement->tables, noted[i]))
            ligi_placement_unsettle(placement, noted[i]);
    }
    return LIG_OK;
}

lig_status ligi_placement_rested(ligi_placement *placement)
{
    ligi_entries *resting = &placement->resting;
    size_t count = resting->count;
    lig_status status = LIG_OK;

    placement->round++;
    for (size_t i = 0; i < count; i++) {
        ligi_entry entry = resting->items[i];
        assert(placement->marks[entry].flags & LIGI_MARK_RESTING);
        placement->marks[entry].flags &= (uint16_t)~LIGI_MARK_RESTING;
        if (status == LIG_OK && ligi_tables_state(placement->tables, entry) == LIGI_ROW_OWNED)
            status = ligi_placement_consider(placement, entry);
    }
    resting->count -= count;
    if (count > 0)
        memmove(resting->items, resting->items + count, resting->count * sizeof *resting->items);
    return status;
}

lig_status ligi_placement_spread(ligi_placement *placement, size_t *budget)
{
    ligi_entries *dirty = &placement->dirty;

    assert(placement->dirty_done <= dirty->count);
    while (placement->dirty_done < dirty->count && *budget > 0) {
        ligi_entry entry = dirty->items[placement->dirty_done++];
        ligi_row_state state = ligi_tables_state(placement->tables, entry);
        if (state == LIGI_ROW_REPLICA)
            LIG_TRY(ligi_placement_send_delta(placement, entry));
        else if (state == LIGI_ROW_OWNED)
            LIG_TRY(ligi_placement_refresh(placement, entry));
        spend(budget, ligi_placement_weight(placement, entry));
    }
    if (placement->dirty_done == dirty->count)
        placement->dirty_done = dirty->count = 0;
    return LIG_OK;
}

lig_status ligi_placement_send_deltas(ligi_placement *placement)
{
    ligi_entries *dirty = &placement->dirty;
    size_t kept = 0;

    assert(placement->dirty_done <= dirty->count);
    for (size_t i = placement->dirty_done; i < dirty->count; i++) {
        ligi_entry entry = dirty->items[i];
        ligi_row_state state = ligi_tables_state(placement->tables, entry);
        if (state == LIGI_ROW_REPLICA)
            LIG_TRY(ligi_placement_send_delta(placement, entry));
        else if (state == LIGI_ROW_OWNED)
            dirty->items[kept++] = entry;
    }
    placement->dirty_done = 0;
    dirty->count = kept;
    return LIG_OK;
}
