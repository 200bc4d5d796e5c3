/* What workers said they will touch, and when. */
#include "params/intents.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* --- calendar --- */

static lig_status calendar_reserve(ligi_calendar *calendar, size_t more)
{
    return ligi_grow(&calendar->slots, &calendar->capacity, calendar->count + more,
                     sizeof *calendar->slots, "intents");
}

static void calendar_add(ligi_calendar *calendar, int64_t at, ligi_segment *segment)
{
    size_t i = calendar->count++;

    while (i > 0 && calendar->slots[(i - 1) / 2].at > at) {
        calendar->slots[i] = calendar->slots[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    calendar->slots[i].at = at;
    calendar->slots[i].segment = segment;
}

static ligi_segment *calendar_take(ligi_calendar *calendar)
{
    ligi_segment *first = calendar->slots[0].segment;
    struct ligi_calendar_slot last = calendar->slots[--calendar->count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < calendar->count) {
        if (child + 1 < calendar->count &&
            calendar->slots[child + 1].at < calendar->slots[child].at)
            child++;
        if (calendar->slots[child].at >= last.at)
            break;
        calendar->slots[i] = calendar->slots[child];
        i = child;
    }
    calendar->slots[i] = last;
    return first;
}

static int64_t calendar_first(const ligi_calendar *calendar)
{
    return calendar->count > 0 ? calendar->slots[0].at : INT64_MAX;
}

/* --- agenda --- */

void ligi_agenda_init(ligi_agenda *agenda)
{
    memset(agenda, 0, sizeof *agenda);
    atomic_init(&agenda->due, INT64_MAX);
}

void ligi_agenda_free(ligi_agenda *agenda, ligi_segment *segment)
{
    atomic_fetch_sub_explicit(&agenda->key_count, segment->count, memory_order_relaxed);
    free(segment);
}

void ligi_agenda_fini(ligi_agenda *agenda)
{
    ligi_segment *next, *queued = atomic_exchange(&agenda->queue, NULL);

    for (; queued != NULL; queued = next) {
        next = queued->next;
        free(queued);
    }
    for (size_t i = 0; i < agenda->starts.count; i++)
        free(agenda->starts.slots[i].segment);
    for (size_t i = 0; i < agenda->ends.count; i++)
        free(agenda->ends.slots[i].segment);
    free(agenda->starts.slots);
    free(agenda->ends.slots);
    ligi_agenda_init(agenda);
}

static int64_t before(int64_t start, int64_t window)
{
    return start < INT64_MIN + window ? INT64_MIN : start - window;
}

/* The queue is written before `due`, and rest writes `due` before it looks at the queue: one of the
 * two sees the other. */
static void bring_forward(ligi_agenda *agenda, int64_t due)
{
    int64_t seen = atomic_load(&agenda->due);

    while (due < seen && !atomic_compare_exchange_weak(&agenda->due, &seen, due))
        ;
}

lig_status ligi_agenda_put(ligi_agenda *agenda, const uint32_t *entries, size_t count,
                           int64_t start, int64_t end)
{
    ligi_segment *segment;

    if (count == 0)
        return LIG_OK;
    if (count > LIGI_INTENT_KEYS_MAX ||
        atomic_load_explicit(&agenda->key_count, memory_order_relaxed) >
            LIGI_INTENT_KEYS_MAX - count)
        return lig_fail(LIG_E_LIMIT,
                        "more than %llu keys of this worker's intents have not ended; signal them "
                        "later, or advance the clock",
                        (unsigned long long)LIGI_INTENT_KEYS_MAX);
    LIG_TRY(ligi_alloc(&segment, sizeof *segment + count * sizeof *entries, "an intent"));
    segment->start = start;
    segment->end = end;
    segment->count = (uint32_t)count;
    segment->done = 0;
    memcpy(segment->entries, entries, count * sizeof *entries);
    atomic_fetch_add_explicit(&agenda->key_count, count, memory_order_relaxed);
    segment->next = atomic_load_explicit(&agenda->queue, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&agenda->queue, &segment->next, segment))
        ;
    bring_forward(agenda,
                  before(start, atomic_load_explicit(&agenda->window, memory_order_relaxed)));
    return LIG_OK;
}

/* What finds no memory is forgotten: it was a hint. */
void ligi_agenda_gather(ligi_agenda *agenda, int64_t clock)
{
    ligi_segment *next, *queued = atomic_exchange(&agenda->queue, NULL);

    for (; queued != NULL; queued = next) {
        next = queued->next;
        if (queued->end <= clock || calendar_reserve(&agenda->starts, 1) != LIG_OK)
            ligi_agenda_free(agenda, queued);
        else
            calendar_add(&agenda->starts, queued->start, queued);
    }
}

ligi_segment *ligi_agenda_begin(ligi_agenda *agenda, int64_t clock, int64_t window)
{
    while (agenda->starts.count > 0 && before(calendar_first(&agenda->starts), window) <= clock) {
        ligi_segment *segment = calendar_take(&agenda->starts);
        if (segment->end > clock && calendar_reserve(&agenda->ends, 1) == LIG_OK) {
            calendar_add(&agenda->ends, segment->end, segment);
            return segment;
        }
        ligi_agenda_free(agenda, segment);
    }
    return NULL;
}

ligi_segment *ligi_agenda_end(ligi_agenda *agenda, int64_t clock)
{
    if (calendar_first(&agenda->ends) > clock || agenda->ends.count == 0)
        return NULL;
    return calendar_take(&agenda->ends);
}

int ligi_agenda_rest(ligi_agenda *agenda, int64_t clock, int64_t window)
{
    int64_t start =
        agenda->starts.count > 0 ? before(calendar_first(&agenda->starts), window) : INT64_MAX;
    int64_t end = calendar_first(&agenda->ends);

    atomic_store_explicit(&agenda->window, window, memory_order_relaxed);
    atomic_store(&agenda->due, start < end ? start : end);
    /* What was put meanwhile is looked at now or brings `due` forward again, after this. */
    for (const ligi_segment *one = atomic_load(&agenda->queue); one != NULL; one = one->next) {
        if (before(one->start, window) <= clock)
            return 0;
        bring_forward(agenda, before(one->start, window));
    }
    return 1;
}

/* --- interests --- */

void ligi_interests_fini(ligi_interests *interests)
{
    free(interests->cells);
    *interests = (ligi_interests){0};
}

lig_status ligi_interests_reserve(ligi_interests *interests, uint32_t count)
{
    return ligi_grow(&interests->cells, &interests->capacity, (size_t)interests->count + count,
                     sizeof *interests->cells, "interests");
}

static uint32_t take_cell(ligi_interests *interests)
{
    uint32_t cell = interests->free;

    if (cell == 0)
        return ++interests->count;
    interests->free = interests->cells[cell - 1].next;
    return cell;
}

int ligi_interests_add(ligi_interests *interests, uint32_t *entry, uint32_t worker, int64_t end)
{
    int first = *entry == 0;
    uint32_t cell = *entry;

    while (cell != 0 && interests->cells[cell - 1].worker != worker)
        cell = interests->cells[cell - 1].next;
    if (cell != 0) {
        ligi_interest *known = &interests->cells[cell - 1];
        if (known->end < end)
            known->end = end;
        return 0;
    }
    cell = take_cell(interests);
    interests->cells[cell - 1] = (ligi_interest){.end = end, .worker = worker, .next = *entry};
    *entry = cell;
    return first;
}

int ligi_interests_end(ligi_interests *interests, uint32_t *entry, uint32_t worker, int64_t clock)
{
    uint32_t *link = entry;

    while (*link != 0 && interests->cells[*link - 1].worker != worker)
        link = &interests->cells[*link - 1].next;
    if (*link == 0 || interests->cells[*link - 1].end > clock)
        return 0;
    uint32_t cell = *link;
    *link = interests->cells[cell - 1].next;
    interests->cells[cell - 1].next = interests->free;
    interests->free = cell;
    return *entry == 0;
}
