/* Sync: when the steward of a node does what. Rounds run in net's tick, under the node's lock, in
 * pieces of bounded work, at least round_ns apart (a fifth of it while more rows are wanted than
 * are asked for at a time), and only when somebody has asked for one: a worker whose clock has
 * reached what its agenda waits for, a row that was written and has copies, a row that has to rest.
 *
 * Letters of SYNC without items are about flushing, `ticket` a number of the one who began it:
 *   number FLUSH    bring the copies of your rows up to date, and say when they are
 *          FLUSHED  they are
 *          PROBE    say ECHO: what was sent before this has been taken in then
 *          DONE     with the oldest letter that was lent and not done with */
#ifndef LIGI_SYNC_ROUND_H
#define LIGI_SYNC_ROUND_H

#include "params/placement/placement.h"

typedef enum ligi_sync_word {
    LIGI_SYNC_FLUSH = 1,
    LIGI_SYNC_FLUSHED = 2,
    LIGI_SYNC_PROBE = 3,
    LIGI_SYNC_ECHO = 4,
    LIGI_SYNC_DONE = 5,
} ligi_sync_word;

/* A worker's. */
typedef struct ligi_intents {
    ligi_agenda agenda;
    _Atomic int woken;   /* since the last round */
    int64_t woken_ns;    /* the worker's thread's, like what follows */
    ligi_entry *scratch; /* the worker's thread's */
    size_t scratch_room;
    pthread_mutex_t notes_lock;
    ligi_entries notes; /* rows it made dirty */
    /* The rounds'. */
    ligi_timing timing;
    int64_t seen_clock, window;
    ligi_segment *beginning, *ending; /* not through */
    int gathered;                     /* in this round */
} ligi_intents;

/* Something that is done by all together, for whoever asks: one at a time, and who asks while it is
 * done waits for the next. */
typedef struct ligi_turn {
    uint64_t started, finished;
} ligi_turn;

static inline int ligi_turn_runs(const ligi_turn *turn)
{
    return turn->started != turn->finished;
}

typedef struct ligi_lent { /* to one node, the oldest first */
    ligi_parcel *first, **last;
} ligi_lent;

typedef struct ligi_sync {
    ligi_steward steward;
    ligi_lent *lent;     /* [node_count] */
    _Atomic int wanted;  /* a round */
    int busy;            /* in one */
    uint32_t at;         /* how many workers it has seen to */
    uint32_t first;      /* the worker it began with */
    uint32_t next_first; /* the next: the one behind whom more was wanted than could be asked for */
    int64_t began_ns;    /* the last one */
    _Atomic int64_t next_ns;     /* there is none before */
    _Atomic int64_t patience_ns; /* a worker waits so long for one that is due */
    int held;                    /* the last one left rows to be asked for later */
    ligi_throttle throttle;
    uint64_t rounds;

    ligi_turn settling; /* what was pushed to copies here is in the owners' rows */
    uint32_t settling_era;
    ligi_turn flushing; /* all nodes have brought the copies of their rows up to date */
    uint32_t flushing_left;
    ligi_turn echoing; /* all nodes have taken in what was sent to them */
    uint32_t echoing_left;
    uint64_t echoed_news; /* steward.news when the last one began */
    uint64_t *flush_for; /* [node_count] what is to be answered after the echoes, + 1; 0: nothing */
    uint64_t *flush_for_later; /* likewise, after the next */
} ligi_sync;

/* Asks for a round. Any thread, no lock. */
void ligi_sync_wake(lig_params *node);
/* What workers have noted so far is the steward's. */
lig_status ligi_sync_gather_notes(lig_params *node);

/* A letter without items. */
lig_status ligi_sync_say(lig_params *node, uint32_t to, ligi_sync_word word, uint64_t ticket);

/* sync_flush.c */
lig_status ligi_flush_arrived(lig_params *node, uint32_t from, const ligi_letter *letter);

#endif
