/* A node of the parameter manager: what its parts share.
 *
 * Who writes what, under which lock:
 *   - Rows, words, places: table.h says (no lock; the row's own sequence word).
 *   - Everything else of a node: its lock (ligi_node_lock: the endpoint's, or a mutex of its own
 * when the node is alone). Hooks of net run with it held.
 *   - A worker's fields: its own thread, without a lock, except those that say otherwise.
 *
 * Files: params_open.c (open, close, enter), meeting of nodes in node_connect.c, node_receive.c
 * (what is sent and what comes), request_send.c (a worker's requests), request_serve.c (requests
 * of others), request_tickets.c (pure), params_worker.c (the public calls), params_barrier.c. Sync
 * (sync_round.h) and sampling plug in at the functions at the end. */
#ifndef LIGI_NODE_STATE_H
#define LIGI_NODE_STATE_H

#include "base/error.h"
#include "group/group.h"
#include "params/state/request_tickets.h"
#include "params/tables/table.h"
#include "params/wire/params_message.h"

#include <pthread.h>
#include <stdatomic.h>

#define LIGI_WHY_TEXT 256
#define LIGI_PATIENCE_NS INT64_C(100000000) /* who waits longer asks whether to go on */

/* --- memory that travels --- */

/* A buffer for one payload. Taken under the lock, filled by whoever has it, given to ligi_peer_post
 * or back. */
#define LIGI_PARCEL_ORDERS 14 /* 4 KiB to 32 MiB */

typedef struct ligi_parcel {
    struct ligi_parcel *next, *with; /* in the pool; with others of one ticket */
    uint64_t room, bytes;            /* what is used of it */
    uint8_t *data;                   /* 64-aligned; lendable where there is a net */
    uint32_t holds;                  /* sends, and whoever waits for an answer */
    uint32_t worker, left;           /* the first of a request that was given up: what is not */
    uint64_t ticket;                 /* answered of it; until then its peers may read them */
} ligi_parcel;

/* --- peers --- */

typedef enum ligi_peer_state {
    LIGI_PEER_AWAITED = 0,
    LIGI_PEER_MET = 1,  /* the link is up */
    LIGI_PEER_HERE = 2, /* and it has shared, or said that it does not */
    LIGI_PEER_GONE = 3,
} ligi_peer_state;

typedef struct ligi_peer {
    lig_params *node;
    uint32_t rank;
    ligi_peer_state state;
    uint32_t incarnation;
    uint64_t group_id;
    ligi_link *link; /* NULL: none */
    int shared;      /* it was told of our region */
    const void
        *region; /* its words and rows as they are mapped here, read-only; NULL: another host */
    const void *offered; /* what it shared; its region if it is as large as one must be */
    uint64_t offered_bytes;
    ligi_mapping *mapping;
    /* The payload that is coming: here, or taken where the peer lent it. */
    ligi_letter letter;
    _Alignas(8) uint8_t head[LIGI_LETTER_HEAD_MAX];
    size_t head_bytes;
    uint64_t payload_bytes;
    uint8_t *inbox;
    size_t inbox_room;
    const uint8_t *lent; /* instead of the inbox; may change under us: read once what is checked */
    ligi_mapping *lent_mapping;
    struct iovec landing;
    char why[LIGI_WHY_TEXT]; /* it is gone */
} ligi_peer;

/* --- workers --- */

typedef struct ligi_counts { /* of one worker: written by its thread alone, read by stats */
    _Atomic uint64_t pulls, pushes, sets, local, replica, shared, remote, intents, samples;
} ligi_counts;

void ligi_counts_add(const ligi_counts *counts, lig_params_stats *stats);

struct ligi_intents; /* of a worker: sync's */
struct ligi_sampler; /* of a worker: sampling's */

struct lig_params_worker {
    lig_params *node;
    uint32_t id;
    _Atomic int64_t clock; /* LIG_PARAMS_FOREVER_CLOCK once finalized; read by sync */
    _Atomic int finalized;
    ligi_tickets tickets; /* guarded by the lock, but for what request_tickets.h says */
    ligi_counts counts;
    struct ligi_intents *intents; /* made by ligi_sync_worker_open */
    struct ligi_sampler *sampler; /* made by ligi_sample_worker_open */
    ligi_batch scratch;           /* entries, misses and noted have room for scratch_room */
    ligi_missed missed;           /* the scratch's, where rows move */
    size_t scratch_room;
    uint8_t *aside; /* rows of which it is not known yet whether all are here */
    size_t aside_room;
    int64_t waited;           /* wait_all has seen the tickets before this one */
    uint64_t staged;          /* rows of open tickets; guarded by the lock */
    struct ligi_asker *asker; /* request_send.c: order, staging; NULL: alone */
};

/* --- the node --- */

struct ligi_sync;     /* sync_round.c's */
struct ligi_sampling; /* what enable_sampling made */
struct ligi_keeping;

typedef struct ligi_desk { /* request_serve.c: room for the keys of one letter */
    size_t room;
    int64_t *keys;
    ligi_entry *entries, *noted;
    uint32_t *positions;
    ligi_miss *mine, *others, *done;
} ligi_desk;

/* What nodes and workers meet for, in the order in which they come to it. Who is at a later one
 * comes to no barrier any more. */
typedef enum ligi_occasion {
    LIGI_AT_BARRIER = 0,
    LIGI_AT_FINALIZE = 1,
    LIGI_AT_SHUTDOWN = 2, /* nodes only; counts as finalized */
} ligi_occasion;

typedef struct ligi_meet { /* of the node's workers; guarded by its own lock, which is innermost */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t inside[LIGI_AT_SHUTDOWN]; /* by occasion */
    uint32_t generation;
    int leading;           /* all are here, and the last to come asks the other nodes */
    int64_t *deadlines_ns; /* [worker_count]; INT64_MAX: not inside */
    ligi_failure outcome;  /* of the last generation */
} ligi_meet;

struct lig_params {
    uint8_t *here; /* 1; a page of its own that a forked child finds wiped */
    uint32_t role, rank, node_count, worker_count, techniques, flags;
    int64_t timeout_ns, round_ns, spin_ns, liveness_ns;
    int (*patience)(void *context); /* NULL, or asked by those who wait; without locks */
    void *patience_context;
    ligi_tables *tables;   /* NULL: a scheduler */
    uint64_t region_bytes; /* of a node's words and rows, when peers may map them */
    ligi_greeting greeting;
    char transport[16];

    pthread_mutex_t lock; /* of a node that is alone; otherwise the endpoint's */
    pthread_cond_t changed;
    ligi_net *net;               /* NULL: alone */
    ligi_group *group;           /* NULL: alone, or it has left */
    pthread_rwlock_t group_lock; /* written by whoever takes the group away */
    uint64_t group_id;
    ligi_peer *peers;            /* [node_count]; the one of this rank is not used */
    lig_params_worker **workers; /* [worker_count]; NULL: not opened, or closed */
    ligi_meet meet;
    ligi_parcel *parcels[LIGI_PARCEL_ORDERS]; /* not in use, by the logarithm of their room */
    uint64_t parcel_bytes;
    ligi_parcel *given_up; /* lent for requests that nobody waits for any more */
    int64_t first_ticket;  /* of the next worker: none is given out twice, also by a second worker
                              of one number, so that a late answer is nobody else's */
    ligi_desk desk;

    _Atomic int stopped; /* shutdown has ended it */
    int leaving;         /* in shutdown: peers may go */
    _Atomic int parted;  /* and all have agreed to it: nobody answers any more */
    int made;            /* the tables are: requests can be served */
    _Atomic int broken;  /* `ended` is set: a node is lost */
    ligi_failure ended;
    int64_t doubt_ns; /* then it is, for this reason, unless a better one is heard; 0: never */
    char doubt[LIGI_WHY_TEXT];
    lig_params_stats totals; /* what closed workers counted, and what is counted under the lock */
    lig_params_stats zero;   /* at the last reset */
    struct ligi_sync *sync;
    struct ligi_sampling *sampling;
    struct ligi_keeping *keeping; /* a save or load that is under way: keep.c */
};

void ligi_node_lock(lig_params *node);
void ligi_node_unlock(lig_params *node);

/* 0 in a forked child. */
int ligi_node_is_here(const lig_params *node);
/* CLOSED in a forked child and after shutdown. */
lig_status ligi_node_check(const lig_params *node);
/* And LIG_E_PEER when a node is lost: for whatever needs the others. With or without the lock. */
lig_status ligi_node_check_others(lig_params *node);
/* 1 when shutdown has come so far that nothing can be waited for. With or without the lock. */
int ligi_node_has_parted(const lig_params *node);
/* Drives net until until(context) is not 0 (asked with the lock held; it must look at
 * node->broken itself if it can depend on others), or waits for a broadcast of `changed` when the
 * node is alone. LIG_FOREVER: none; 0 is one look. LIG_E_CLOSED: the node has parted, or `patience`
 * has ended. */
lig_status ligi_node_wait(lig_params *node, int (*until)(void *context), void *context,
                          int64_t timeout_ns);
/* Something that others wait for has changed, outside a hook. */
void ligi_node_wake(lig_params *node);
/* A node is lost: every wait ends. Under the lock. */
void ligi_node_break(lig_params *node, lig_status status, const char *sentence);

/* params_barrier.c: all nodes; all workers of all nodes. No lock. */
lig_status ligi_node_meet(lig_params *node, ligi_occasion occasion, int64_t timeout_ns);
lig_status ligi_worker_meet(lig_params_worker *worker, ligi_occasion occasion, int64_t timeout_ns);

/* --- workers; params_worker.c, request_send.c --- */

/* The keys of batch->misses (after read or write) are asked for elsewhere: what can be had without
 * a message is done, the rest gets a ticket (LIG_PARAMS_LOCAL: nothing is left). */
lig_status ligi_ask(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch, int64_t *ticket);
/* Waits for requests of this worker that an access of these keys must not overtake. */
lig_status ligi_ask_order(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch);
/* 1 when there is none: then nothing is waited for. */
int ligi_ask_may(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch);
/* One of its requests fails now, unless it has ended. Under the lock. */
void ligi_ask_end(lig_params_worker *worker, ligi_ticket *ticket, lig_status status,
                  const char *sentence);
/* Its open requests fail; nothing writes to the caller's memory from now on. Under the lock. */
void ligi_ask_abandon(lig_params_worker *worker, lig_status status, const char *sentence);
/* What was lent and not answered goes back; after net is closed; no lock. */
void ligi_ask_forget(lig_params *node);
lig_status ligi_asker_create(lig_params_worker *worker);
void ligi_asker_destroy(lig_params_worker *worker);
/* What is left until a deadline: never below 0; LIG_FOREVER stays. */
int64_t ligi_time_left(int64_t deadline_ns);
int64_t ligi_time_until(int64_t timeout_ns); /* the deadline; INT64_MAX: none */

/* --- sending; under the lock --- */

lig_status ligi_parcel_take(lig_params *node, uint64_t bytes, ligi_parcel **parcel);
void ligi_parcel_drop(lig_params *node, ligi_parcel *parcel); /* NULL is fine */

/* One message with the first parcel->bytes of a parcel (NULL: none), which is dropped when it has
 * gone; `tail` follows the letter in the head. A failure breaks the node unless it is broken
 * already, so callers inside hooks may ignore it. */
typedef struct ligi_post {
    ligi_letter letter; /* version is filled in */
    const void *tail;
    size_t tail_bytes;
    ligi_parcel *parcel;
    uint32_t send_flags; /* LIGI_SEND_* */
} ligi_post;
lig_status ligi_peer_post(ligi_peer *peer, const ligi_post *post);
/* Takes what it offered for its region, if it can be; under the lock. */
void ligi_peer_accept(ligi_peer *peer);

/* request_serve.c; under the lock. */
lig_status ligi_answer_ask(ligi_peer *peer, const ligi_letter *letter, const ligi_parts *parts);
/* request_send.c; `rank` answers. */
lig_status ligi_ask_answered(lig_params *node, uint32_t rank, const ligi_letter *letter,
                             const ligi_parts *parts);

/* --- where things are; with or without the lock --- */

static inline int ligi_node_alone(const lig_params *node)
{
    return node->net == NULL;
}

/* --- what others plug in. All under the lock unless they say otherwise. --- */

/* sync_round.c. A node that is alone has no sync: none of these is called for it but
 * worker_open/close and intent. Public calls that are sync's, alone or not: lig_params_intent,
 * wait_sync, flush, begin_setup, end_setup. advance_clock and current_clock are in
 * params_worker.c. */
lig_status ligi_sync_init(lig_params *node); /* before the nodes meet; no lock */
void ligi_sync_fini(lig_params *node);       /* after net is closed; no lock */
lig_status ligi_sync_worker_open(lig_params_worker *worker);
void ligi_sync_worker_close(lig_params_worker *worker);
/* From net's tick: does what is due, says when it wants to be called next (INT64_MAX: when
 * ligi_net_hurry(net, LIGI_SERVICE_PARAMS) is called). */
int64_t ligi_sync_tick(lig_params *node, int64_t now_ns);
/* SYNC, NEWS or NOTE, checked by ligi_letter_check; a failing status loses the peer, and so the
 * job. */
lig_status ligi_sync_arrived(ligi_peer *peer, const ligi_letter *letter, const ligi_parts *parts);
/* Rows that a write has made dirty (ligi_batch.noted): by a worker's own thread without the lock,
 * or, with `worker` NULL, under it, for a peer. */
void ligi_sync_noted(lig_params *node, lig_params_worker *worker, const ligi_entry *noted,
                     size_t count);
/* `origin` has pushed to or set a row that is owned here, by an ASK, and has not been answered.
 * What it has as a copy is renewed by a letter that goes before the answer (same link): the copy
 * may have been on its way while the request was, and its worker must find there what it did. For
 * each row of an ASK that is PUSH or SET and was done here; cheap when nobody has a copy. */
void ligi_sync_written_by(lig_params *node, ligi_entry entry, uint32_t origin);
/* A worker is about to set a row (or push with Adam) that is a COPY here: the copy is given up. The
 * row is ABSENT, or DRAINING, after this; when it has drained the set is asked for like any access
 * of a row that is not here, and the copy comes again by itself. Nothing is done to rows in other
 * states. */
void ligi_sync_surrender(lig_params *node, ligi_entry entry);
/* Rows of batch->misses that this node has asked for because of an intent, and that have not come:
 * waits for them, a few milliseconds at most, while it takes in what comes. What is asked for by
 * message now would come behind them. 1 when some may have come. The worker's thread, no lock. */
int ligi_sync_await(lig_params_worker *worker, const ligi_batch *batch);
/* A worker's clock has changed; its own thread, no lock. Must be cheap. */
void ligi_sync_clock(lig_params_worker *worker);
/* A worker is finalized: its intents end. No lock. */
void ligi_sync_finalize(lig_params_worker *worker);
void ligi_sync_broken(lig_params *node);                         /* a node is lost */
void ligi_sync_stats(lig_params *node, lig_params_stats *stats); /* adds what sync counts */

/* sampling.c */
void ligi_sampling_fini(lig_params *node);
lig_status ligi_sample_worker_open(lig_params_worker *worker);
void ligi_sample_worker_close(lig_params_worker *worker);

/* keep.c. A node begins with `keeping` NULL: it is made when first needed, also for a scheduler's
 * life never. */
lig_status ligi_keep_arrived(ligi_peer *peer, const ligi_letter *letter, const void *payload,
                             uint64_t bytes); /* KEEP; a failing status loses the peer */
/* 1 for what is of interest even when a node is lost: it may say why that left. */
int ligi_keep_tells_why(const ligi_letter *letter);
void ligi_keep_fini(lig_params *node); /* after net is closed; no lock */
/* What keep asks of sync. No lock; called by one thread of each of the nodes, while no worker
 * pushes. On return all that this node's workers pushed is in the owners' rows, and all rows dirty
 * here that others have copies of are in those copies. */
lig_status ligi_sync_settle(lig_params *node, int64_t timeout_ns);

#endif
