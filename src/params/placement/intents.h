/* Intents: which keys workers will access, and when. Pure except for atomics: no net, no tables. An
 * intent is a segment: entries with one start and one end. The worker puts it into its agenda
 * without blocking; rounds take it from there when its start is near, and again when its end has
 * come. A node's interest in an entry is the latest end that any of its workers announced. The
 * entries of a segment that ends are not visited: entries refer to the segment's ending, which is
 * then marked as over. */
#ifndef LIGI_INTENTS_H
#define LIGI_INTENTS_H

#include <ligament/base.h>

#include <stdatomic.h>

#define LIGI_INTENT_KEYS_MAX (UINT64_C(1) << 26) /* per worker, not ended */

/* --- a worker's agenda --- */

typedef struct ligi_intent_segment {
    struct ligi_intent_segment *next; /* in the queue: the previous segment */
    int64_t start, end;
    uint32_t count;
    uint32_t done;   /* progress of the walk over the entries */
    uint32_t ending; /* in the interests of its worker; 0: not begun */
    uint32_t entries[];
} ligi_intent_segment;

typedef struct ligi_intent_calendar { /* a heap */
    struct ligi_intent_calendar_slot {
        int64_t at;
        ligi_intent_segment *segment;
    } *slots;
    size_t count, capacity;
} ligi_intent_calendar;

typedef struct ligi_agenda { /* embedded; zeroed is valid and empty */
    _Atomic(ligi_intent_segment *) queue;
    _Atomic uint64_t key_count;        /* of all segments */
    _Atomic int64_t due;               /* rounds need not process this agenda before this clock */
    _Atomic int64_t window;            /* of the last round */
    ligi_intent_calendar starts, ends; /* used by rounds only, like all below */
} ligi_agenda;

void ligi_agenda_init(ligi_agenda *agenda);
void ligi_agenda_fini(ligi_agenda *agenda);

/* The worker's thread. Copies the entries; never blocks. LIG_E_LIMIT: too many are pending. */
lig_status ligi_agenda_put(ligi_agenda *agenda, const uint32_t *entries, size_t count,
                           int64_t start, int64_t end);
/* The worker's thread: 1 if a round has work at this clock. */
static inline int ligi_agenda_is_due(const ligi_agenda *agenda, int64_t clock)
{
    return clock >= atomic_load_explicit(&agenda->due, memory_order_relaxed);
}

/* A round calls `gather`, then `begin` and `end` until both return NULL, then `rest`. */

/* Sorts in new segments; drops those that have ended by `clock`. */
void ligi_agenda_gather(ligi_agenda *agenda, int64_t clock);
/* The next segment that starts by clock + window and has not ended; `end` returns it again
 * later. */
ligi_intent_segment *ligi_agenda_begin(ligi_agenda *agenda, int64_t clock, int64_t window);
/* The next segment that ends by `clock`; the caller owns it from here on. */
ligi_intent_segment *ligi_agenda_end(ligi_agenda *agenda, int64_t clock);
void ligi_agenda_free(ligi_agenda *agenda, ligi_intent_segment *segment);
/* Sets the clock at which there is work again. 0 if a due segment was put meanwhile: repeat. */
int ligi_agenda_rest(ligi_agenda *agenda, int64_t clock, int64_t window);

/* --- a node's interest in an entry --- */

/* An end clock that several interests share. */
typedef struct ligi_ending {
    uint32_t number; /* 0: free */
    uint32_t worker;
    int64_t end;
    uint32_t *holder;          /* holds the number too */
    struct ligi_ending_watch { /* the caller's: entries to examine at that clock */
        uint32_t *items;
        size_t count, room;
    } watch;
} ligi_ending;

typedef struct ligi_interest { /* one of several in the same entry */
    uint32_t number;
    uint32_t next; /* cell + 1 */
} ligi_interest;

/* An entry stores one number, owned by the caller, initially 0: the number of an ending, or of a
 * list of endings if several workers are interested. References to endings that are over remain and
 * mean nothing: their numbers are not reused before ligi_interests_stale allows it. */
typedef struct ligi_interests { /* embedded; zeroed is valid */
    ligi_ending *endings;       /* indexed by the lowest bits of their number */
    uint32_t room, used, last;  /* a power of two; in use; the last number assigned */
    ligi_interest *cells;
    size_t cell_room;
    uint32_t cell_count, cell_free; /* ever used; first free cell + 1 */
} ligi_interests;

#define LIGI_INTERESTS_SEVERAL 0x80000000u /* a cell + 1 */

void ligi_interests_fini(ligi_interests *interests);
/* Returns an ending for interests added from now on. Its number is stored in *holder, which must
 * stay in place until `close` sets it to 0. */
lig_status ligi_interests_open(ligi_interests *interests, uint32_t worker, int64_t end,
                               uint32_t *holder);
void ligi_interests_close(ligi_interests *interests, ligi_ending *ending);
/* NULL if it is over. Valid until the next open. */
static inline ligi_ending *ligi_interests_at(const ligi_interests *interests, uint32_t number)
{
    ligi_ending *ending = number != 0 ? &interests->endings[number & (interests->room - 1)] : NULL;

    return ending != NULL && ending->number == number ? ending : NULL;
}
/* One of the entry's endings that is not over; NULL: no worker is interested. */
ligi_ending *ligi_interests_first(ligi_interests *interests, uint32_t *entry);
/* If the worker already has an ending, the later one counts. *gained is 1 if no worker was
 * interested before. */
lig_status ligi_interests_add_slowly(ligi_interests *interests, uint32_t *entry,
                                     const ligi_ending *ending, int *gained);
static inline lig_status ligi_interests_add(ligi_interests *interests, uint32_t *entry,
                                            const ligi_ending *ending, int *gained)
{
    const ligi_ending *known;

    if (*entry & LIGI_INTERESTS_SEVERAL)
        return ligi_interests_add_slowly(interests, entry, ending, gained);
    known = ligi_interests_at(interests, *entry);
    if (known != NULL && known->worker != ending->worker)
        return ligi_interests_add_slowly(interests, entry, ending, gained);
    *gained = known == NULL;
    if (known == NULL || known->end < ending->end)
        *entry = ending->number;
    return LIG_OK;
}
/* 1 if numbers must start over: the caller passes every entry to `renumber`, then calls `renew`,
 * before anything else. */
static inline int ligi_interests_stale(const ligi_interests *interests)
{
    return interests->last >= LIGI_INTERESTS_SEVERAL / 2;
}
void ligi_interests_renumber(ligi_interests *interests, uint32_t *entry);
void ligi_interests_renew(ligi_interests *interests);

#endif
