/* Sync rounds: when a node handles intents, sends deltas of its replicas and updates of its rows.
 * Rounds run in net's tick, under the node's lock, in pieces of bounded work, at least round_ns
 * apart (a fifth of it while more rows are wanted than may be requested at a time), and only when
 * one was requested: by a worker whose clock has reached an intent, by a write to a row with
 * replicas, or by a row that must rest before it moves again.
 *
 * SYNC messages without items are about flushing; `ticket` is a number of the node that began it:
 *   number FLUSH    bring the replicas of your rows up to date, then send FLUSHED
 *          FLUSHED  they are up to date PROBE    send ECHO, which follows everything that was
 *          handled before DONE     with the oldest message that was lent and not yet confirmed */
#ifndef LIGI_SYNC_ROUND_H
#define LIGI_SYNC_ROUND_H

#include "params/placement/inflight_limit.h"
#include "params/placement/placement.h"
#include "params/state/node.h"

typedef enum ligi_sync_word {
    LIGI_SYNC_FLUSH = 1,
    LIGI_SYNC_FLUSHED = 2,
    LIGI_SYNC_PROBE = 3,
    LIGI_SYNC_ECHO = 4,
    LIGI_SYNC_DONE = 5,
} ligi_sync_word;

/* Per worker. */
typedef struct ligi_intents {
    ligi_agenda agenda;
    _Atomic int woken;   /* since the last round */
    int64_t woken_ns;    /* used by the worker's thread only, like those below */
    ligi_entry *scratch; /* used by the worker's thread only */
    size_t scratch_room;
    pthread_mutex_t notes_lock;
    ligi_entries notes; /* rows it made dirty */
    /* Used by rounds. */
    ligi_action_timing timing;
    int64_t seen_clock, window;
    ligi_intent_segment *beginning, *ending; /* not finished */
    int gathered;                            /* in this round */
} ligi_intents;

/* An operation shared by all callers: one runs at a time, and a caller that arrives meanwhile waits
 * for the next one. */
typedef struct ligi_turn {
    uint64_t started, finished;
} ligi_turn;

static inline int ligi_turn_runs(const ligi_turn *turn)
{
    return turn->started != turn->finished;
}

typedef struct ligi_lent { /* to one node, the oldest first */
    ligi_send_buffer *first, **last;
} ligi_lent;

typedef struct ligi_sync {
    ligi_placement placement;
    ligi_lent *lent;     /* [node_count] */
    _Atomic int wanted;  /* rounds */
    int busy;            /* a round is running */
    uint32_t at;         /* how many workers it has handled */
    uint32_t first;      /* the worker it started with */
    uint32_t next_first; /* the next one: after the worker for which more was wanted than could be
                          * requested */
    int64_t began_ns;    /* time of the last round */
    _Atomic int64_t next_ns;     /* there was none before */
    _Atomic int64_t patience_ns; /* how long a worker waits for a round that is due */
    int held;                    /* the last round left rows to request later */
    ligi_throttle throttle;
    uint64_t rounds;

    ligi_turn settling; /* pushes to replicas here are in the owners' rows */
    uint32_t settling_era;
    ligi_turn flushing; /* all nodes have brought the replicas of their rows up to date */
    uint32_t flushing_left;
    ligi_turn echoing; /* all nodes have applied what was sent to them */
    uint32_t echoing_left;
    uint64_t echoed_updates;   /* placement.updates when the last one began */
    uint64_t *flush_for;       /* [node_count] to be answered after the echoes, + 1; 0: nothing */
    uint64_t *flush_for_later; /* the same, after the next */
} ligi_sync;

/* Requests a round. Any thread, no lock. */
void ligi_sync_wake(lig_params *node);
/* Passes on to placement what workers have noted so far. */
lig_status ligi_sync_gather_notes(lig_params *node);

/* A message without items. */
lig_status ligi_sync_say(lig_params *node, uint32_t to, ligi_sync_word word, uint64_t ticket);

/* All under the lock unless stated otherwise. A single node has no sync: only worker_open/close and
 * intent are called for it. Public calls implemented by sync: lig_params_intent, wait_sync, flush,
 * begin_setup, end_setup. advance_clock and current_clock are in params_worker.c. */
lig_status ligi_sync_init(lig_params *node); /* before the nodes connect; no lock */
void ligi_sync_fini(lig_params *node);       /* after net is closed; no lock */
lig_status ligi_sync_worker_open(lig_params_worker *worker);
void ligi_sync_worker_close(lig_params_worker *worker);
/* From net's tick: does what is due, returns when it must be called next (INT64_MAX: when
 * ligi_net_hurry(net, LIGI_SERVICE_PARAMS) is called). */
int64_t ligi_sync_tick(lig_params *node, int64_t now_ns);
/* SYNC, UPDATE or LOCATION, checked by ligi_params_message_check; on failure the peer is lost, and
 * with it the job. */
lig_status ligi_sync_arrived(ligi_params_peer *peer, const ligi_params_message *message,
                             const ligi_params_parts *parts);
/* Rows that a write has made dirty (ligi_batch.noted): by a worker's own thread without the lock,
 * or, with `worker` NULL, under it, for a peer. */
void ligi_sync_noted(lig_params *node, lig_params_worker *worker, const ligi_entry *noted,
                     size_t count);
/* `origin` has pushed to or set a row owned here, by a REQUEST that has not been answered. Its
 * replica is updated by a message sent before the response on the same link: the replica may have
 * been on its way at the same time, and the worker must see its own write there. Called for each
 * row of a PUSH or SET that was done here; cheap if there is no replica. */
void ligi_sync_written_by(lig_params *node, ligi_entry entry, uint32_t origin);
/* A worker is about to set a row (or push with Adam) that is a REPLICA here: drops the replica. The
 * row is then ABSENT or DRAINING; when it has drained, the set is sent like any access of a remote
 * row, and the interest brings the replica back. No-op for rows in other states. */
void ligi_sync_surrender(lig_params *node, ligi_entry entry);
/* Waits, a few milliseconds at most, for rows of batch->misses that this node has requested because
 * of an intent and that have not arrived; handles messages meanwhile. A request sent now would
 * arrive after them. 1 if some may have arrived. The worker's thread, no lock. */
int ligi_sync_await(lig_params_worker *worker, const ligi_batch *batch);
/* A worker's clock has changed; its own thread, no lock. Must be cheap. */
void ligi_sync_clock(lig_params_worker *worker);
/* A worker is finalized: its intents end. No lock. */
void ligi_sync_finalize(lig_params_worker *worker);
void ligi_sync_stats(lig_params *node, lig_params_stats *stats); /* adds the counters of sync */

#endif
