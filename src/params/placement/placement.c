/* One node's part in moving and copying: what comes, what becomes of interest, and rounds. */
#include "params/placement/placement.h"

#include "params/placement/placement_owner.h"
#include "params/placement/placement_replica.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST ((UINT64_C(1) << 48) - 2) /* what a place has room for */

#define IS_HERE (LIGI_MARK_COPY | LIGI_MARK_OWNED)

enum { AHEAD_ENTRY = 32, BLOCK = 16 }; /* entries that are fetched before they are looked at */

lig_status ligi_steward_init(ligi_steward *steward, const ligi_steward_options *options)
{
    uint64_t body = ligi_tables_body_bytes_max(options->tables),
             delta = ligi_tables_delta_bytes_max(options->tables);
    void *marks = ligi_tables_asides(options->tables);

    *steward = (ligi_steward){.tables = options->tables,
                              .rank = options->rank,
                              .node_count = options->node_count,
                              .techniques = options->techniques,
                              .round = LIGI_POLICY_REST,
                              .marks = marks};
    return ligi_courier_init(&steward->courier, &options->carrier, options->node_count,
                             body > delta ? body : delta);
}

void ligi_steward_fini(ligi_steward *steward)
{
    ligi_courier_fini(&steward->courier);
    ligi_interests_fini(&steward->interests);
    ligi_subscribers_fini(&steward->subscribers);
    free(steward->lapsed.items);
    free(steward->dirty.items);
    free(steward->resting.items);
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

lig_status ligi_steward_tell(ligi_steward *steward, uint32_t to, ligi_item_kind kind,
                             ligi_entry entry, uint64_t number)
{
    const ligi_item item = {
        .key = ligi_tables_key(steward->tables, entry), .number = number, .kind = (uint16_t)kind};
    const ligi_address address = {.to = to,
                                  .kind = kind == LIGI_ITEM_HERE    ? LIGI_LETTER_NOTE
                                          : kind >= LIGI_ITEM_MOVED ? LIGI_LETTER_NEWS
                                                                    : LIGI_LETTER_SYNC,
                                  .origin = steward->rank};

    return ligi_courier_say(&steward->courier, &address, &item);
}

/* --- what comes --- */

/* Bytes of the row that comes with an item of this kind. */
static uint64_t row_bytes(const ligi_steward *steward, uint32_t kind, ligi_entry entry)
{
    switch (kind) {
    case LIGI_ITEM_DELTA: return ligi_tables_delta_bytes(steward->tables, entry);
    case LIGI_ITEM_MOVED:
    case LIGI_ITEM_COPIED:
    case LIGI_ITEM_FRESH: return ligi_tables_body_bytes(steward->tables, entry);
    default: return 0;
    }
}

static int belongs(uint32_t letter, uint32_t item)
{
    switch (letter) {
    case LIGI_LETTER_SYNC: return item >= LIGI_ITEM_WANT && item <= LIGI_ITEM_DELTA;
    case LIGI_LETTER_NEWS: return item >= LIGI_ITEM_MOVED && item <= LIGI_ITEM_TAKEN;
    case LIGI_LETTER_NOTE: return item == LIGI_ITEM_HERE;
    default: return 0;
    }
}

static lig_status one_arrived(ligi_steward *steward, const ligi_incoming *incoming,
                              const ligi_item *item, ligi_entry entry)
{
    if (incoming->letter->kind == LIGI_LETTER_SYNC)
        return ligi_steward_to_owner(steward, incoming, item, entry);
    if (incoming->letter->kind == LIGI_LETTER_NEWS)
        return ligi_steward_from_owner(steward, incoming, item, entry);
    if (ligi_tables_state(steward->tables, entry) == LIGI_ROW_ABSENT) /* else it is known better */
        ligi_tables_place_update(steward->tables, entry,
                                 (ligi_place){incoming->from, item->number});
    return LIG_OK;
}

static void meet_mark(const ligi_steward *steward, uint64_t entry)
{
    if (entry < ligi_tables_entry_limit(steward->tables))
        (void)*(const volatile uint16_t *)&steward->marks[entry].flags;
}

/* Dense keys are entries; to find those of others takes as long as to wait for them. */
static void fetch_block(const ligi_steward *steward, const ligi_item *items, uint32_t at,
                        uint32_t count)
{
    const ligi_tables *tables = steward->tables;
    uint32_t first = at == 0 ? 0 : BLOCK;

    if (at % BLOCK != 0 || ligi_tables_hashed(tables))
        return;
    for (uint32_t i = at + 3 * first; i < at + 4 * BLOCK && i < count; i++)
        meet_mark(steward, (uint64_t)items[i].key);
    for (uint32_t i = at + 2 * first; i < at + 3 * BLOCK && i < count; i++)
        ligi_tables_meet_word(tables, (uint64_t)items[i].key);
    for (uint32_t i = at + first; i < at + 2 * BLOCK && i < count; i++)
        ligi_tables_meet_row(tables, (uint64_t)items[i].key);
    for (uint32_t i = at + first; i < at + 2 * BLOCK && i < count; i++)
        ligi_tables_fetch_row(tables, (uint64_t)items[i].key);
}

lig_status ligi_steward_arrived(ligi_steward *steward, uint32_t from, const ligi_letter *letter,
                                const ligi_parts *parts)
{
    ligi_incoming incoming = {.from = from, .letter = letter, .row = parts->rows};
    uint64_t left = parts->rows_bytes;

    if (letter->kind == LIGI_LETTER_SYNC && letter->origin >= steward->node_count)
        return lig_fail(LIG_E_CORRUPT, "node %u speaks for node %u, which there is not", from,
                        letter->origin);
    for (uint32_t i = 0; i < letter->count; i++) {
        ligi_item item; /* the payload may change while it is looked at */
        ligi_entry entry;
        memcpy(&item, &parts->items[i], sizeof item);
        fetch_block(steward, parts->items, i, letter->count);
        lig_status status = ligi_tables_entry(steward->tables, item.key, &entry);
        if (status == LIG_E_LIMIT && letter->kind == LIGI_LETTER_SYNC &&
            item.kind == LIGI_ITEM_WANT)
            continue; /* a hint: whoever accesses the key is told that there is no room for it */
        LIG_TRY(status);
        uint64_t bytes = row_bytes(steward, item.kind, entry);
        if (!belongs(letter->kind, item.kind) || bytes > left || item.number > NUMBER_MOST)
            return lig_fail(LIG_E_CORRUPT,
                            "node %u sent an item of kind %u about key %lld that makes no sense",
                            from, item.kind, (long long)item.key);
        LIG_TRY(one_arrived(steward, &incoming, &item, entry));
        incoming.row += bytes;
        left -= bytes;
    }
    if (left != 0)
        return lig_fail(LIG_E_CORRUPT, "node %u sent %llu bytes too much", from,
                        (unsigned long long)left);
    return ligi_courier_send(&steward->courier);
}

/* --- interest --- */

static void fetch_marks(const ligi_steward *steward, const ligi_segment *segment, uint32_t i)
{
    uint32_t from = i == 0 ? 0 : i + AHEAD_ENTRY - 1, to = i + AHEAD_ENTRY;

    for (; from < to && from < segment->count; from++)
        __builtin_prefetch(&steward->marks[segment->entries[from]], 1);
}

static void fetch_unknown(const ligi_steward *steward, const ligi_segment *segment, uint32_t i)
{
    if (i % BLOCK != 0)
        return;
    for (uint32_t at = i; at < i + BLOCK && at < segment->count; at++)
        if (!(steward->marks[segment->entries[at]].flags & IS_HERE))
            ligi_tables_meet_word(steward->tables, segment->entries[at]);
}

lig_status ligi_steward_watch(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];
    ligi_ending *ending = ligi_interests_first(&steward->interests, &mark->interest);

    if (mark->flags & LIGI_MARK_WATCHED || ending == NULL)
        return LIG_OK;
    LIG_TRY(ligi_grow(&ending->watch.items, &ending->watch.room, ending->watch.count + 1,
                      sizeof *ending->watch.items, "a list of keys"));
    ending->watch.items[ending->watch.count++] = entry;
    mark->flags |= LIGI_MARK_WATCHED;
    return LIG_OK;
}

/* It is wanted, and was not. */
static lig_status gained_interest(ligi_steward *steward, ligi_entry entry)
{
    ligi_row_state state = ligi_tables_state(steward->tables, entry);

    if (state == LIGI_ROW_OWNED)
        steward->marks[entry].flags |= LIGI_MARK_OWNED;
    return state == LIGI_ROW_ABSENT ? ligi_steward_want(steward, entry) : LIG_OK;
}

static lig_status open_ending(ligi_steward *steward, uint32_t worker, ligi_segment *segment)
{
    if (segment->ending != 0)
        return LIG_OK;
    if (ligi_interests_stale(&steward->interests)) {
        uint64_t count = ligi_tables_entry_limit(steward->tables);
        for (uint64_t i = 0; i < count; i++)
            ligi_interests_renumber(&steward->interests, &steward->marks[i].interest);
        ligi_interests_renew(&steward->interests);
    }
    return ligi_interests_open(&steward->interests, worker, segment->end, &segment->ending);
}

lig_status ligi_steward_begin(ligi_steward *steward, uint32_t worker, ligi_segment *segment,
                              size_t *budget, int *through)
{
    uint32_t i = segment->done, stop = segment->count;

    if (stop - i > *budget)
        stop = i + (uint32_t)*budget;
    LIG_TRY(open_ending(steward, worker, segment));
    *budget -= stop - i;
    const ligi_ending *ending = ligi_interests_at(&steward->interests, segment->ending);
    for (; i < stop; i++) {
        ligi_entry entry = segment->entries[i];
        int gained;
        fetch_marks(steward, segment, i);
        fetch_unknown(steward, segment, i);
        ligi_mark *mark = &steward->marks[entry];
        LIG_TRY(ligi_interests_add(&steward->interests, &mark->interest, ending, &gained));
        if (gained && !(mark->flags & IS_HERE))
            LIG_TRY(gained_interest(steward, entry));
        if (mark->flags & LIGI_MARK_COPY || mark->others != 0)
            LIG_TRY(ligi_steward_watch(steward, entry));
    }
    *through = i == segment->count;
    segment->done = i;
    return LIG_OK;
}

/* Of an entry that no worker of this node is interested in any more. What comes yet is dealt with
 * when it has come. */
static lig_status lost_interest(ligi_steward *steward, ligi_entry entry)
{
    const ligi_mark *mark = &steward->marks[entry];

    if (mark->flags & LIGI_MARK_COPY)
        return ligi_steward_give_up(steward, entry);
    return mark->others != 0 ? ligi_steward_consider(steward, entry) : LIG_OK;
}

static lig_status lapse(ligi_steward *steward, ligi_entry entry)
{
    ligi_mark *mark = &steward->marks[entry];

    mark->flags &= (uint16_t)~LIGI_MARK_WATCHED;
    if (!ligi_steward_cares(steward, entry))
        return lost_interest(steward, entry);
    return mark->flags & LIGI_MARK_COPY || mark->others != 0 ? ligi_steward_watch(steward, entry)
                                                             : LIG_OK;
}

lig_status ligi_steward_end(ligi_steward *steward, ligi_segment *segment, size_t *budget,
                            int *through)
{
    ligi_ending *ending = ligi_interests_at(&steward->interests, segment->ending);
    ligi_entries *lapsed = &steward->lapsed;

    if (ending != NULL) {
        LIG_TRY(ligi_entries_add(lapsed, ending->watch.items, ending->watch.count));
        ligi_interests_close(&steward->interests, ending);
    }
    for (; lapsed->count > 0 && *budget > 0; (*budget)--)
        LIG_TRY(lapse(steward, lapsed->items[--lapsed->count]));
    *through = lapsed->count == 0;
    return LIG_OK;
}

/* --- rounds --- */

lig_status ligi_steward_note(ligi_steward *steward, const ligi_entry *noted, size_t count)
{
    LIG_TRY(ligi_entries_add(&steward->dirty, noted, count));
    for (size_t i = 0; i < count; i++)
        if (ligi_tables_has_pending(steward->tables, noted[i]))
            ligi_steward_unsettle(steward, noted[i]);
    return LIG_OK;
}

lig_status ligi_steward_rested(ligi_steward *steward)
{
    ligi_entries *resting = &steward->resting;
    size_t count = resting->count;
    lig_status status = LIG_OK;

    steward->round++;
    for (size_t i = 0; i < count; i++) {
        ligi_entry entry = resting->items[i];
        steward->marks[entry].flags &= (uint16_t)~LIGI_MARK_RESTING;
        if (status == LIG_OK && ligi_tables_state(steward->tables, entry) == LIGI_ROW_OWNED)
            status = ligi_steward_consider(steward, entry);
    }
    resting->count -= count;
    if (count > 0)
        memmove(resting->items, resting->items + count, resting->count * sizeof *resting->items);
    return status;
}

lig_status ligi_steward_spread(ligi_steward *steward, size_t *budget)
{
    ligi_entries *dirty = &steward->dirty;

    for (; steward->dirty_done < dirty->count && *budget > 0; (*budget)--) {
        ligi_entry entry = dirty->items[steward->dirty_done++];
        ligi_row_state state = ligi_tables_state(steward->tables, entry);
        if (state == LIGI_ROW_COPY)
            LIG_TRY(ligi_steward_send_delta(steward, entry));
        else if (state == LIGI_ROW_OWNED)
            LIG_TRY(ligi_steward_refresh(steward, entry));
    }
    if (steward->dirty_done == dirty->count)
        steward->dirty_done = dirty->count = 0;
    return LIG_OK;
}

lig_status ligi_steward_send_deltas(ligi_steward *steward)
{
    ligi_entries *dirty = &steward->dirty;
    size_t kept = 0;

    for (size_t i = steward->dirty_done; i < dirty->count; i++) {
        ligi_entry entry = dirty->items[i];
        ligi_row_state state = ligi_tables_state(steward->tables, entry);
        if (state == LIGI_ROW_COPY)
            LIG_TRY(ligi_steward_send_delta(steward, entry));
        else if (state == LIGI_ROW_OWNED)
            dirty->items[kept++] = entry;
    }
    steward->dirty_done = 0;
    dirty->count = kept;
    return LIG_OK;
}
