/* What workers said they will touch, and when. Pure but for the atomics: no net, no tables.
 *
 * An intent is a segment: entries with one start and one end. Its worker puts it into the worker's
 * agenda, without waiting; rounds take it from there when its start is near, and again when its end
 * has come. A node's interest in an entry is the latest end that each of its workers said. */
#ifndef LIGI_INTENTS_H
#define LIGI_INTENTS_H

#include <ligament/base.h>

#include <stdatomic.h>

#define LIGI_INTENT_KEYS_MAX (UINT64_C(1) << 26) /* of one worker that have not ended */

/* --- a worker's agenda --- */

typedef struct ligi_segment {
    struct ligi_segment *next; /* in the queue: the one put before it */
    int64_t start, end;
    uint32_t count;
    uint32_t done; /* for whoever walks it: how far it is */
    uint32_t entries[];
} ligi_segment;

typedef struct ligi_calendar { /* a heap */
    struct ligi_calendar_slot {
        int64_t at;
        ligi_segment *segment;
    } *slots;
    size_t count, capacity;
} ligi_calendar;

typedef struct ligi_agenda { /* embedded; zeroed is valid and empty */
    _Atomic(ligi_segment *) queue;
    _Atomic uint64_t key_count; /* of all segments */
    _Atomic int64_t due;        /* no round has anything to do with it before this clock */
    _Atomic int64_t window;     /* of the last round */
    ligi_calendar starts, ends; /* the rounds' alone, like all that follows */
} ligi_agenda;

void ligi_agenda_init(ligi_agenda *agenda);
void ligi_agenda_fini(ligi_agenda *agenda);

/* The worker's thread. Copies the entries; never waits. LIG_E_LIMIT: too many have not ended. */
lig_status ligi_agenda_put(ligi_agenda *agenda, const uint32_t *entries, size_t count,
                           int64_t start, int64_t end);
/* The worker's thread: 1 when a round has something to do at this clock. */
static inline int ligi_agenda_is_due(const ligi_agenda *agenda, int64_t clock)
{
    return clock >= atomic_load_explicit(&agenda->due, memory_order_relaxed);
}

/* A round's: `gather`, then `begin` and `end` until both are NULL, then `rest`. */

/* Files what was put; drops what has ended by `clock`. */
void ligi_agenda_gather(ligi_agenda *agenda, int64_t clock);
/* The next segment that starts by clock + window and has not ended; it comes again from `end`. */
ligi_segment *ligi_agenda_begin(ligi_agenda *agenda, int64_t clock, int64_t window);
/* The next segment that ends by `clock`; the caller's from here on. */
ligi_segment *ligi_agenda_end(ligi_agenda *agenda, int64_t clock);
void ligi_agenda_free(ligi_agenda *agenda, ligi_segment *segment);
/* Says from which clock on there is something to do. 0 when something was put meanwhile that is
 * due: once more. */
int ligi_agenda_rest(ligi_agenda *agenda, int64_t clock, int64_t window);

/* --- a node's interest in an entry --- */

typedef struct ligi_interest {
    int64_t end;
    uint32_t worker;
    uint32_t next; /* cell + 1 */
} ligi_interest;

/* Cells for the interests of all entries. An entry's own part is one number, the caller's: 0 when
 * nobody is interested. */
typedef struct ligi_interests { /* embedded; zeroed is valid */
    ligi_interest *cells;
    size_t capacity;
    uint32_t count, free; /* cells ever used; first free one + 1 */
} ligi_interests;

void ligi_interests_fini(ligi_interests *interests);
/* Makes room for `count` more, so that so many adds cannot fail. */
lig_status ligi_interests_reserve(ligi_interests *interests, uint32_t count);
/* The later end counts. Returns 1 when nobody was interested before. */
int ligi_interests_add(ligi_interests *interests, uint32_t *entry, uint32_t worker, int64_t end);
/* Forgets the worker's interest if it has ended by `clock`. Returns 1 when it was the last. */
int ligi_interests_end(ligi_interests *interests, uint32_t *entry, uint32_t worker, int64_t clock);

#endif
