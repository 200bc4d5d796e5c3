/* One node's part in moving and copying: what comes, what becomes of interest, and rounds. */
#include "params/steward.h"

#include "params/slab.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST ((UINT64_C(1) << 48) - 2) /* what a place has room for */

#define IS_HERE (LIGI_MARK_COPY | LIGI_MARK_OWNED)

enum { AHEAD_ENTRY = 24, AHEAD_ROW = 10 }; /* entries that are fetched before they are looked at */

lig_status ligi_steward_init(ligi_steward *steward, const ligi_steward_options *options)
{
    uint64_t entries = ligi_tables_entry_limit(options->tables);
    uint64_t body = ligi_tables_body_bytes_max(options->tables),
             delta = ligi_tables_delta_bytes_max(options->tables);

    *steward = (ligi_steward){.tables = options->tables,
                              .rank = options->rank,
                              .node_count = options->node_count,
                              .techniques = options->techniques,
                              .round = LIGI_POLICY_REST,
                              .mark_bytes = (entries * sizeof(ligi_mark) / LIGI_HUGE_PAGE + 1) *
                                            LIGI_HUGE_PAGE};
    void *marks; /* in huge pages: they are looked at in any order */
    LIG_TRY(ligi_region_make(steward->mark_bytes, &marks));
    steward->marks = marks;
    lig_status status = ligi_courier_init(&steward->courier, &options->carrier, options->node_count,
                                          body > delta ? body : delta);
    if (status != LIG_OK) {
        ligi_region_destroy(steward->marks, steward->mark_bytes);
        steward->marks = NULL;
    }
    return status;
}

void ligi_steward_fini(ligi_steward *steward)
{
    ligi_courier_fini(&steward->courier);
    ligi_interests_fini(&steward->interests);
    ligi_subscribers_fini(&steward->subscribers);
    free(steward->dirty.items);
    free(steward->resting.items);
    ligi_region_destroy(steward->marks, steward->mark_bytes);
    steward->marks = NULL;
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

static void fetch_entry(const ligi_steward *steward, uint64_t entry)
{
    if (entry < ligi_tables_entry_limit(steward->tables))
        __builtin_prefetch(&steward->marks[entry], 1);
    ligi_tables_fetch_word(steward->tables, entry);
}

/* Dense keys are entries; to find those of others takes as long as to wait for them. */
static void fetch_items(const ligi_steward *steward, const ligi_item *items, uint32_t left)
{
    if (ligi_tables_hashed(steward->tables))
        return;
    if (left > AHEAD_ENTRY)
        fetch_entry(steward, (uint64_t)items[AHEAD_ENTRY].key);
    if (left > AHEAD_ROW)
        ligi_tables_fetch_row(steward->tables, (uint64_t)items[AHEAD_ROW].key);
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
        lig_status status = ligi_tables_entry(steward->tables, item.key, &entry);
        if (status == LIG_E_LIMIT && letter->kind == LIGI_LETTER_SYNC &&
            item.kind == LIGI_ITEM_WANT)
            continue; /* a hint: whoever accesses the key is told that there is no room for it */
        LIG_TRY(status);
        fetch_items(steward, parts->items + i, letter->count - i);
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
    if (i + AHEAD_ROW < segment->count &&
        !(steward->marks[segment->entries[i + AHEAD_ROW]].flags & IS_HERE))
        ligi_tables_fetch_word(steward->tables, segment->entries[i + AHEAD_ROW]);
}

/* It is wanted, and was not. */
static lig_status gained_interest(ligi_steward *steward, ligi_entry entry)
{
    ligi_row_state state = ligi_tables_state(steward->tables, entry);

    if (state == LIGI_ROW_OWNED)
        steward->marks[entry].flags |= LIGI_MARK_OWNED;
    return state == LIGI_ROW_ABSENT ? ligi_steward_want(steward, entry) : LIG_OK;
}

lig_status ligi_steward_begin(ligi_steward *steward, uint32_t worker, ligi_segment *segment,
                              size_t *budget, int *through)
{
    uint32_t i = segment->done, stop = segment->count;

    if (stop - i > *budget)
        stop = i + (uint32_t)*budget;
    LIG_TRY(ligi_interests_reserve(&steward->interests, stop - i));
    *budget -= stop - i;
    for (; i < stop; i++) {
        ligi_entry entry = segment->entries[i];
        fetch_marks(steward, segment, i);
        fetch_unknown(steward, segment, i);
        ligi_mark *mark = &steward->marks[entry];
        if (ligi_interests_add(&steward->interests, &mark->interest, worker, segment->end) &&
            !(mark->flags & IS_HERE))
            LIG_TRY(gained_interest(steward, entry));
    }
    *through = i == segment->count;
    segment->done = *through ? 0 : i;
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

lig_status ligi_steward_end(ligi_steward *steward, uint32_t worker, int64_t clock,
                            ligi_segment *segment, size_t *budget)
{
    uint32_t i = segment->done, stop = segment->count;

    if (stop - i > *budget)
        stop = i + (uint32_t)*budget;
    *budget -= stop - i;
    for (; i < stop; i++) {
        fetch_marks(steward, segment, i);
        ligi_mark *mark = &steward->marks[segment->entries[i]];
        if (ligi_interests_end(&steward->interests, &mark->interest, worker, clock))
            LIG_TRY(lost_interest(steward, segment->entries[i]));
    }
    segment->done = i;
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
