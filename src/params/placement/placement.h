/* Who has which rows: one node's part in moving and copying. No net and no threads of its own: it
 * is told what has come and what time it is, changes the tables and says what is to be sent
 * (sync_send.h). All of it under one lock, the caller's; workers read and write rows meanwhile
 * without it.
 *
 * What is said (params_message.h), all of it about one key:
 *
 *   SYNC, to the owner
 *     WANT        the origin is interested and has no row. Passed on until it meets the owner, who
 *                 answers once, by COPIED or MOVED, at once or when it is the origin's turn.
 *     DELTA n, m  what was pushed to the origin's copy of a row that had moved m times. The next
 *                 follows only when this one is known to be in.
 *     DROP m      the origin has given that copy up; behind its last delta.
 *                 Whoever owns the row no more has given it to the origin, with all it had of it:
 *                 DELTA and DROP are of no interest then. Nor when it owns it once more, by way of
 *                 a third, which is why they say m.
 *   NEWS, from the owner to one node
 *     COPIED m    a copy, of a row that has moved m times. The owner stays until all copies are
 *                 dropped, or gives the row to the last that is left.
 *     FRESH n, m  the row anew, with delta n of the receiver in it; when somebody has written. Of a
 *                 copy that was given up, and another had since from another owner, when m differs.
 *     TAKEN n     delta n is in. Before MOVED, and after DROP.
 *     MOVED m     the row itself, for the m-th time. What the receiver had pushed to its copy and
 *                 has not heard to be in it, it adds.
 *   NOTE, to the row's home
 *     HERE m      the sender owns it, since its m-th move. */
#ifndef LIGI_PLACEMENT_H
#define LIGI_PLACEMENT_H

#include "params/placement/action_timing.h"
#include "params/placement/intents.h"
#include "params/placement/placement_policy.h"
#include "params/placement/subscribers.h"
#include "params/rows/row_types.h"
#include "params/wire/sync_send.h"

#define LIGI_MARK_WANTED 1u    /* a want is under way */
#define LIGI_MARK_LEAVING 2u   /* draining, and the drop is not said */
#define LIGI_MARK_RESTING 4u   /* in the list of those to be looked at again */
#define LIGI_MARK_UNSETTLED 8u /* a copy: something pushed to it may not be in the owner's row */
#define LIGI_MARK_ERA 16u      /* of what is unsettled: the era it began in, odd or even */
#define LIGI_MARK_LAP 32u    /* unsettled from the era before, and one delta was confirmed since */
#define LIGI_MARK_COPY 64u   /* it is one */
#define LIGI_MARK_OWNED 128u /* it is; a row that has not been looked at may be as well */
#define LIGI_MARK_WATCHED                                                                          \
    256u /* in the list of an ending, or of those that have lapsed: all copies and rows that       \
            others want are, while this node is interested */

/* What is known of an entry besides its row, as it lies in the tables' aside of it. */
typedef struct ligi_mark {
    uint64_t place;    /* the tables' */
    uint32_t interest; /* of this node's workers: interests' */
    uint32_t others;   /* OWNED: subscribers' */
    uint32_t number;   /* of the last delta sent to an owner */
    uint16_t arrived;  /* OWNED: the round it came in */
    uint16_t flags;
    uint64_t reserved;
} ligi_mark;
_Static_assert(sizeof(ligi_mark) == sizeof(ligi_aside), "a mark is an aside");

typedef struct ligi_entries { /* embedded; zeroed is valid */
    ligi_entry *items;
    size_t count, capacity;
} ligi_entries;

typedef struct ligi_steward_counts {
    uint64_t relocations_in, relocations_out, replications, drops, forwarded;
} ligi_steward_counts;

typedef struct ligi_steward {
    ligi_tables *tables;
    uint32_t rank, node_count;
    lig_params_techniques techniques;
    ligi_courier courier;
    ligi_mark *marks; /* by entry; in memory of the tables */
    ligi_interests interests;
    ligi_entries lapsed; /* an ending of theirs is over: to be looked at */
    ligi_subscribers subscribers;
    ligi_entries dirty; /* noted: copies with something pending, rows that others have copies of */
    size_t dirty_done;
    ligi_entries resting;
    uint32_t round;
    uint32_t era;           /* what becomes unsettled belongs to this one */
    uint64_t unsettled[2];  /* copies, by era, odd and even */
    uint64_t news;          /* rows of NEWS said so far */
    _Atomic uint64_t wants; /* that are under way; others may read it without the lock */
    ligi_steward_counts counts;
} ligi_steward;

typedef struct ligi_steward_options {
    ligi_tables *tables; /* borrowed */
    uint32_t rank, node_count;
    lig_params_techniques techniques;
    ligi_carrier carrier;
} ligi_steward_options;

lig_status ligi_steward_init(ligi_steward *steward, const ligi_steward_options *options);
void ligi_steward_fini(ligi_steward *steward);

/* What came. SYNC, NEWS or NOTE; hostile until checked here: a failing status loses the peer. */
lig_status ligi_steward_arrived(ligi_steward *steward, uint32_t from, const ligi_letter *letter,
                                const ligi_parts *parts);

/* A worker becomes interested in a segment, or is no more. Looks at *budget entries at most, which
 * is lessened; `begin` goes on at segment->done. Once more while *through is 0. */
lig_status ligi_steward_begin(ligi_steward *steward, uint32_t worker, ligi_segment *segment,
                              size_t *budget, int *through);
lig_status ligi_steward_end(ligi_steward *steward, ligi_segment *segment, size_t *budget,
                            int *through);
/* Rows that a write made dirty (ligi_batch.noted): for the next ligi_steward_spread. */
lig_status ligi_steward_note(ligi_steward *steward, const ligi_entry *noted, size_t count);
/* A round begins: rows have rested one more. Those that wait for that are looked at. */
lig_status ligi_steward_rested(ligi_steward *steward);
/* Sends on what was noted: deltas to owners, rows to copies. */
lig_status ligi_steward_spread(ligi_steward *steward, size_t *budget);
/* The deltas alone; rows for copies wait on. */
lig_status ligi_steward_send_deltas(ligi_steward *steward);

/* --- between the files of the steward --- */

typedef struct ligi_incoming { /* where an item came in */
    uint32_t from;
    const ligi_letter *letter;
    const uint8_t *row; /* of the item, when its kind has one */
} ligi_incoming;

lig_status ligi_entries_add(ligi_entries *entries, const ligi_entry *items, size_t count);
/* An item without a row, in the letter that its kind belongs to. */
lig_status ligi_steward_tell(ligi_steward *steward, uint32_t to, ligi_item_kind kind,
                             ligi_entry entry, uint64_t number);
/* Interested at the moment. */
static inline int ligi_steward_cares(ligi_steward *steward, ligi_entry entry)
{
    return ligi_interests_first(&steward->interests, &steward->marks[entry].interest) != NULL;
}
/* A copy, or a row that others want: looked at when the interest in it ends. */
lig_status ligi_steward_watch(ligi_steward *steward, ligi_entry entry);

#endif
