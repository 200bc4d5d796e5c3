/* Which node has which rows: one node's part in relocation and replication. No net and no threads:
 * the caller passes in what has arrived and the time; this module changes the tables and composes
 * the messages to send (sync_send.h). Everything runs under the caller's lock; workers read and
 * write rows concurrently without it.
 *
 * owner_protocol.h implements the owner of a row, replica_protocol.h any other node;
 * placement_policy.h decides whether a row is relocated or replicated.
 *
 * Items (params_message.h), each about one key:
 *
 *   SYNC, to the owner
 *     WANT         the origin is interested and has no row. Forwarded until it reaches the owner,
 *                  which answers once, with REPLICA or RELOCATED, immediately or when it is the
 *                  origin's turn.
 *     DELTA n, m   pushes to the origin's replica of a row that had moved m times. The next delta
 *                  is sent only when this one is confirmed.
 *     DROP m       the origin has dropped that replica; sent after its last delta.
 *                  A node that no longer owns the row has relocated it to the origin, with all
 *                  deltas it had received, and ignores DELTA and DROP. If it owns the row again,
 *                  after a third node did, it recognises stale ones by m and ignores them too.
 *   UPDATE, from the owner to one node
 *     REPLICA m    a replica of a row that has moved m times. The owner keeps the row until all
 *                  replicas are dropped, or relocates it to the last subscriber.
 *     FRESH n, m   the row after a write, including delta n of the receiver. If m differs, it
 *                  refers to an older replica that one of another owner has replaced.
 *     TAKEN n      delta n is applied. Sent before RELOCATED, and after DROP.
 *     RELOCATED m  the row itself, for the m-th time. The receiver adds the pushes to its replica
 *                  that were not confirmed.
 *   LOCATION, to the row's home
 *     HERE m       the sender owns the row, since its m-th move. */
#ifndef LIGI_PLACEMENT_H
#define LIGI_PLACEMENT_H

#include "params/placement/action_timing.h"
#include "params/placement/intents.h"
#include "params/placement/placement_policy.h"
#include "params/placement/subscribers.h"
#include "params/rows/row_types.h"
#include "params/wire/sync_send.h"

#define LIGI_MARK_WANTED 1u    /* a WANT is outstanding */
#define LIGI_MARK_LEAVING 2u   /* draining, and DROP is not sent */
#define LIGI_MARK_RESTING 4u   /* in the list of entries to examine again */
#define LIGI_MARK_UNSETTLED 8u /* replica: some pushes may not be in the owner's row */
#define LIGI_MARK_ERA 16u      /* of unsettled pushes: the era they began in, odd or even */
#define LIGI_MARK_LAP 32u      /* unsettled since the previous era; one delta was confirmed since */
#define LIGI_MARK_REPLICA 64u  /* it is a replica */
#define LIGI_MARK_OWNED 128u   /* it is owned; set lazily */
/* In the list of an ending or in the lapsed list: all replicas, and rows that others want, while
 * this node is interested. */
#define LIGI_MARK_WATCHED 256u

/* Placement's part of an entry's ligi_entry_info. */
typedef struct ligi_mark {
    uint64_t location; /* owned by the tables */
    uint32_t interest; /* interests of this node's workers */
    uint32_t others;   /* OWNED: subscribers */
    uint32_t number;   /* of the last delta sent to an owner */
    uint16_t arrived;  /* OWNED: the round it arrived in */
    uint16_t flags;
    uint64_t reserved;
} ligi_mark;
_Static_assert(sizeof(ligi_mark) == sizeof(ligi_entry_info), "a mark is an entry info");

typedef struct ligi_entries { /* embedded; zeroed is valid */
    ligi_entry *items;
    size_t count, capacity;
} ligi_entries;

typedef struct ligi_placement_counts {
    uint64_t relocations_in, relocations_out, replications, drops, forwarded;
} ligi_placement_counts;

typedef struct ligi_placement {
    ligi_tables *tables;
    uint32_t rank, node_count;
    lig_params_techniques techniques;
    ligi_sync_sender sender;
    ligi_mark *marks; /* by entry; in memory of the tables */
    ligi_interests interests;
    ligi_entries lapsed; /* an ending is over: to be examined */
    ligi_subscribers subscribers;
    ligi_entries dirty; /* replicas with pending deltas, rows that others have replicas of */
    size_t dirty_done;
    ligi_entries resting;
    uint32_t round;
    uint32_t era;           /* new unsettled pushes belong to this era */
    uint64_t unsettled[2];  /* replicas, by era, odd and even */
    uint64_t updates;       /* rows of UPDATE sent so far */
    _Atomic uint64_t wants; /* outstanding, by weight; may be read without the lock */
    uint64_t heavy;         /* the part of `wants` that exceeds 1 per row */
    ligi_placement_counts counts;
} ligi_placement;

typedef struct ligi_placement_options {
    ligi_tables *tables; /* borrowed */
    uint32_t rank, node_count;
    lig_params_techniques techniques;
    ligi_send_ops send_ops;
} ligi_placement_options;

lig_status ligi_placement_init(ligi_placement *placement, const ligi_placement_options *options);
void ligi_placement_fini(ligi_placement *placement);

/* A received SYNC, UPDATE or LOCATION message; untrusted until checked here. On failure the peer is
 * lost. */
lig_status ligi_placement_arrived(ligi_placement *placement, uint32_t from,
                                  const ligi_params_message *message,
                                  const ligi_params_parts *parts);

/* A worker becomes interested in a segment, or loses interest. Examines at most *budget entries and
 * reduces it; `begin` continues at segment->done. Call again while *through is 0. */
lig_status ligi_placement_begin(ligi_placement *placement, uint32_t worker,
                                ligi_intent_segment *segment, size_t *budget, int *through);
lig_status ligi_placement_end(ligi_placement *placement, ligi_intent_segment *segment,
                              size_t *budget, int *through);
/* Rows that a write has made dirty (ligi_batch.noted): for the next ligi_placement_spread. */
lig_status ligi_placement_note(ligi_placement *placement, const ligi_entry *noted, size_t count);
/* A round begins: all rows have rested for one more round. Examines those that wait for this. */
lig_status ligi_placement_rested(ligi_placement *placement);
/* The weight of a row in `wants` and in budgets: 1, plus 1 for every 64 KiB. */
uint64_t ligi_placement_weight(const ligi_placement *placement, ligi_entry entry);
/* An estimate of the time until the outstanding long rows have arrived. */
int64_t ligi_placement_transfer_ns(const ligi_placement *placement);
/* Sends deltas to owners and rows to replicas for everything noted. */
lig_status ligi_placement_spread(ligi_placement *placement, size_t *budget);
/* The deltas only; rows for replicas stay queued. */
lig_status ligi_placement_send_deltas(ligi_placement *placement);

/* --- between the files of the placement --- */

typedef struct ligi_placement_incoming { /* where an item was received */
    uint32_t from;
    const ligi_params_message *message;
    const uint8_t *row; /* of the item, when its kind has one */
} ligi_placement_incoming;

lig_status ligi_entries_add(ligi_entries *entries, const ligi_entry *items, size_t count);
/* An item without a row, in the message of its kind. */
lig_status ligi_placement_send_item(ligi_placement *placement, uint32_t to,
                                    ligi_sync_item_kind kind, ligi_entry entry, uint64_t number);
/* Whether this node is interested now. */
static inline int ligi_placement_is_interested(ligi_placement *placement, ligi_entry entry)
{
    return ligi_interests_first(&placement->interests, &placement->marks[entry].interest) != NULL;
}
/* A replica, or a row that others want: examined when the interest in it ends. */
lig_status ligi_placement_watch(ligi_placement *placement, ligi_entry entry);

#endif
