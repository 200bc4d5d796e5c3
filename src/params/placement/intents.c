/* Intents: which keys workers will access, and when. */
#include "params/placement/intents.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- calendar --- */

static lig_status calendar_reserve(ligi_intent_calendar *calendar, size_t more)
{
    return ligi_grow(&calendar->slots, &calendar->capacity, calendar->count + more,
                     sizeof *calendar->slots, "intents");
}

static void calendar_add(ligi_intent_calendar *calendar, int64_t at, ligi_intent_segment *segment)
{
    assert(calendar->count < calendar->capacity);
    size_t i = calendar->count++;

    while (i > 0 && calendar->slots[(i - 1) / 2].at > at) {
        calendar->slots[i] = calendar->slots[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    calendar->slots[i].at = at;
    calendar->slots[i].segment = segment;
}

static ligi_intent_segment *calendar_take(ligi_intent_calendar *calendar)
{
    assert(calendar->count > 0);
    ligi_intent_segment *first = calendar->slots[0].segment;
    struct ligi_intent_calendar_slot last = calendar->slots[--calendar->count];
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

static int64_t calendar_first(const ligi_intent_calendar *calendar)
{
    return calendar->count > 0 ? calendar->slots[0].at : INT64_MAX;
}

/* --- agenda --- */

void ligi_agenda_init(ligi_agenda *agenda)
{
    memset(agenda, 0, sizeof *agenda);
    atomic_init(&agenda->due, INT64_MAX);
}

void ligi_agenda_free(ligi_agenda *agenda, ligi_intent_segment *segment)
{
    atomic_fetch_sub_explicit(&agenda->key_count, segment->count, memory_order_relaxed);
    free(segment);
}

void ligi_agenda_fini(ligi_agenda *agenda)
{
    ligi_intent_segment *next, *queued = atomic_exchange(&agenda->queue, NULL);

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

/* put writes the queue before `due`, and rest writes `due` before it reads the queue: one of the
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
    ligi_intent_segment *segment;

    if (count == 0)
        return LIG_OK;
    if (count > LIGI_INTENT_KEYS_MAX ||
        atomic_load_explicit(&agenda->key_count, memory_order_relaxed) >
            LIGI_INTENT_KEYS_MAX - count)
        return lig_fail(LIG_E_LIMIT,
                        "more than %llu keys of this worker's intents have not ended: signal them "
                        "later, or advance the clock",
                        (unsigned long long)LIGI_INTENT_KEYS_MAX);
    LIG_TRY(ligi_alloc(&segment, sizeof *segment + count * sizeof *entries, "an intent"));
    segment->start = start;
    segment->end = end;
    segment->count = (uint32_t)count;
    segment->done = segment->ending = 0;
    memcpy(segment->entries, entries, count * sizeof *entries);
    atomic_fetch_add_explicit(&agenda->key_count, count, memory_order_relaxed);
    segment->next = atomic_load_explicit(&agenda->queue, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&agenda->queue, &segment->next, segment))
        ;
    bring_forward(agenda,
                  before(start, atomic_load_explicit(&agenda->window, memory_order_relaxed)));
    return LIG_OK;
}

/* Without memory the intent is dropped: it is a hint. */
void ligi_agenda_gather(ligi_agenda *agenda, int64_t clock)
{
    ligi_intent_segment *next, *queued = atomic_exchange(&agenda->queue, NULL);

    for (; queued != NULL; queued = next) {
        next = queued->next;
        if (queued->end <= clock || calendar_reserve(&agenda->starts, 1) != LIG_OK)
            ligi_agenda_free(agenda, queued);
        else
            calendar_add(&agenda->starts, queued->start, queued);
    }
}

ligi_intent_segment *ligi_agenda_begin(ligi_agenda *agenda, int64_t clock, int64_t window)
{
    while (agenda->starts.count > 0 && before(calendar_first(&agenda->starts), window) <= clock) {
        ligi_intent_segment *segment = calendar_take(&agenda->starts);
        if (segment->end > clock && calendar_reserve(&agenda->ends, 1) == LIG_OK) {
            calendar_add(&agenda->ends, segment->end, segment);
            return segment;
        }
        ligi_agenda_free(agenda, segment);
    }
    return NULL;
}

ligi_intent_segment *ligi_agenda_end(ligi_agenda *agenda, int64_t clock)
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
    /* Segments that were put meanwhile are either seen now or bring `due` forward again after
     * this. */
    for (const ligi_intent_segment *one = atomic_load(&agenda->queue); one != NULL;
         one = one->next) {
        if (before(one->start, window) <= clock)
            return 0;
        bring_forward(agenda, before(one->start, window));
    }
    return 1;
}

/* --- interests --- */

enum { ENDINGS_LEAST = 64 };

void ligi_interests_fini(ligi_interests *interests)
{
    for (uint32_t i = 0; i < interests->room; i++)
        free(interests->endings[i].watch.items);
    free(interests->endings);
    free(interests->cells);
    *interests = (ligi_interests){0};
}

/* Endings with distinct slots in half the table have distinct slots in this one. */
static lig_status make_room(ligi_interests *interests)
{
    uint32_t room = interests->room > 0 ? 2 * interests->room : ENDINGS_LEAST;
    ligi_ending *endings;

    if (interests->used < interests->room / 2)
        return LIG_OK;
    if (room > LIGI_INTERESTS_SEVERAL / 8)
        return lig_fail(LIG_E_LIMIT,
                        "too many pending intents (advance the clocks, or signal intents later)");
    LIG_TRY(ligi_calloc(&endings, room, sizeof *endings, "intents"));
    for (uint32_t i = 0; i < interests->room; i++)
        if (interests->endings[i].number != 0)
            endings[interests->endings[i].number & (room - 1)] = interests->endings[i];
        else
            free(interests->endings[i].watch.items);
    free(interests->endings);
    interests->endings = endings;
    interests->room = room;
    return LIG_OK;
}

lig_status ligi_interests_open(ligi_interests *interests, uint32_t worker, int64_t end,
                               uint32_t *holder)
{
    ligi_ending *ending;

    LIG_TRY(make_room(interests));
    do
        ending = &interests->endings[++interests->last & (interests->room - 1)];
    while (ending->number != 0);
    assert(interests->used < interests->room && interests->last < LIGI_INTERESTS_SEVERAL);
    ending->number = *holder = interests->last;
    ending->worker = worker;
    ending->end = end;
    ending->holder = holder;
    ending->watch.count = 0;
    interests->used++;
    return LIG_OK;
}

void ligi_interests_close(ligi_interests *interests, ligi_ending *ending)
{
    assert(ending->number != 0 && *ending->holder == ending->number && interests->used > 0);
    *ending->holder = 0;
    ending->number = 0;
    interests->used--;
}

/* Frees cells whose endings are over. */
static void prune(ligi_interests *interests, uint32_t *entry)
{
    uint32_t *link = entry, cell;

    *entry &= ~LIGI_INTERESTS_SEVERAL;
    while ((cell = *link) != 0) {
        ligi_interest *one = &interests->cells[cell - 1];
        if (ligi_interests_at(interests, one->number) != NULL) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = interests->cell_free;
        interests->cell_free = cell;
    }
    if (*entry != 0)
        *entry |= LIGI_INTERESTS_SEVERAL;
}

static lig_status add_cell(ligi_interests *interests, uint32_t *entry, uint32_t number)
{
    uint32_t cell = interests->cell_free;

    assert(number != 0 && !(number & LIGI_INTERESTS_SEVERAL));
    if (cell == 0) {
        LIG_TRY(ligi_grow(&interests->cells, &interests->cell_room, interests->cell_count + 1u,
                          sizeof *interests->cells, "interests"));
        cell = ++interests->cell_count;
    } else {
        interests->cell_free = interests->cells[cell - 1].next;
    }
    interests->cells[cell - 1] =
        (ligi_interest){.number = number, .next = *entry & ~LIGI_INTERESTS_SEVERAL};
    *entry = cell | LIGI_INTERESTS_SEVERAL;
    return LIG_OK;
}

ligi_ending *ligi_interests_first(ligi_interests *interests, uint32_t *entry)
{
    if (*entry & LIGI_INTERESTS_SEVERAL)
        prune(interests, entry);
    if (*entry & LIGI_INTERESTS_SEVERAL)
        return ligi_interests_at(interests,
                                 interests->cells[(*entry & ~LIGI_INTERESTS_SEVERAL) - 1].number);
    return ligi_interests_at(interests, *entry);
}

lig_status ligi_interests_add_slowly(ligi_interests *interests, uint32_t *entry,
                                     const ligi_ending *ending, int *gained)
{
    *gained = ligi_interests_first(interests, entry) == NULL;
    if (*gained) {
        *entry = ending->number;
        return LIG_OK;
    }
    if (!(*entry & LIGI_INTERESTS_SEVERAL)) {
        uint32_t first = *entry;
        *entry = 0;
        LIG_TRY(add_cell(interests, entry, first));
    }
    for (uint32_t cell = *entry & ~LIGI_INTERESTS_SEVERAL; cell != 0;
         cell = interests->cells[cell - 1].next) {
        ligi_interest *one = &interests->cells[cell - 1];
        const ligi_ending *known = ligi_interests_at(interests, one->number);
        if (known->worker != ending->worker)
            continue;
        if (known->end < ending->end)
            one->number = ending->number;
        return LIG_OK;
    }
    return add_cell(interests, entry, ending->number);
}

/* Open endings get the lowest numbers that map to their current slots. */
static uint32_t renumbered(const ligi_interests *interests, const ligi_ending *ending)
{
    return ending == NULL ? 0 : interests->room + (uint32_t)(ending - interests->endings);
}

void ligi_interests_renumber(ligi_interests *interests, uint32_t *entry)
{
    if (!(*entry & LIGI_INTERESTS_SEVERAL)) {
        *entry = renumbered(interests, ligi_interests_at(interests, *entry));
        return;
    }
    prune(interests, entry);
    for (uint32_t cell = *entry & ~LIGI_INTERESTS_SEVERAL; cell != 0;
         cell = interests->cells[cell - 1].next) {
        uint32_t *number = &interests->cells[cell - 1].number;
        *number = renumbered(interests, ligi_interests_at(interests, *number));
    }
}

void ligi_interests_renew(ligi_interests *interests)
{
    for (uint32_t i = 0; i < interests->room; i++) {
        ligi_ending *ending = &interests->endings[i];
        assert(ending->number == 0 || *ending->holder == ending->number);
        if (ending->number != 0)
            ending->number = *ending->holder = renumbered(interests, ending);
    }
    interests->last = 2 * interests->room - 1;
}
