/* A node of the parameter manager: the state that its parts share.
 *
 * Who writes what, under which lock:
 *   - Rows, words, locations: see table.h (no lock; the row's own sequence word).
 *   - Everything else of a node: its lock (ligi_node_lock: the endpoint's, or a mutex of its own
 *     when the node is alone). Hooks of net run with it held.
 *   - A worker's fields: its own thread, without a lock, except those that say otherwise.
 *
 * The modules above this one keep their state behind the pointers `sync`, `sampling`, ... */
#ifndef LIGI_NODE_H
#define LIGI_NODE_H

#include "group/session/session.h"
#include "params/state/request_tickets.h"
#include "params/tables/key_groups.h"
#include "params/tables/table.h"
#include "params/wire/outgoing.h"

#include <pthread.h>
#include <stdatomic.h>

#define LIGI_PATIENCE_NS INT64_C(100000000) /* longer waits poll `patience` */

/* --- peers --- */

typedef struct ligi_params_peer {
    ligi_session_peer base; /* first */
    lig_params *node;
    int answered;        /* it has shared its region, or said that it does not */
    int shared;          /* it has been sent our region */
    const void *region;  /* its words and rows, mapped read-only; NULL: another host */
    const void *offered; /* the region it shared, if its size is correct */
    uint64_t offered_bytes;
    ligi_mapping *mapping;
    /* The payload being received: here, or read where the peer lent it. */
    ligi_params_message message;
    _Alignas(8) uint8_t head[LIGI_PARAMS_HEAD_MAX];
    size_t head_bytes;
    uint64_t payload_bytes;
    uint8_t *inbox;
    size_t inbox_room;
    const uint8_t *lent; /* instead of the inbox; the peer may change it: read once before
                          * checking */
    ligi_mapping *lent_mapping;
    struct iovec landing;
} ligi_params_peer;

/* --- workers --- */

typedef struct ligi_params_counts { /* of one worker: written by its thread alone, read by stats */
    _Atomic uint64_t pulls, pushes, sets, local, replica, shared, remote, intents, samples;
} ligi_params_counts;

struct ligi_intents; /* per worker, owned by sync */
struct ligi_sampler; /* per worker, owned by sampling */

struct lig_params_worker {
    lig_params *node;
    uint32_t id;
    _Atomic int64_t clock; /* LIG_PARAMS_FOREVER_CLOCK once finalized; read by sync */
    _Atomic int finalized;
    ligi_request_tickets tickets; /* guarded by the lock, except as request_tickets.h says */
    ligi_params_counts counts;
    struct ligi_intents *intents; /* created by ligi_sync_worker_open */
    struct ligi_sampler *sampler; /* created by ligi_sample_worker_open */
    ligi_batch scratch;           /* entries, misses and noted have capacity scratch_room */
    ligi_seen_set seen_set;       /* in the scratch, if rows move */
    size_t scratch_room;
    uint8_t *aside; /* rows read before it is known whether all are local */
    size_t aside_room;
    int pushes_sums;        /* lig_params_push_sums calls lig_params_push: its keys differ */
    ligi_key_groups groups; /* of the last lig_params_push_sums, and its sums */
    uint8_t *sums;
    size_t sums_room;
    int64_t waited;                             /* wait_all has reported the tickets before this
                                                 * one */
    uint64_t staged;                            /* rows of open tickets; guarded by the lock */
    struct ligi_params_request_state *requests; /* request_send.c: order, staging; NULL: single
                                                 * node */
};

/* --- the node --- */

struct ligi_sync;     /* sync_round.c's */
struct ligi_sampling; /* created by enable_sampling */
struct ligi_snapshot_state;

typedef struct ligi_serve_scratch { /* request_serve.c: scratch for the keys of one message */
    size_t room;
    int64_t *keys;
    ligi_entry *entries, *noted;
    uint32_t *positions;
    ligi_miss *mine, *others, *done;
} ligi_serve_scratch;

/* Points of synchronisation, in the order in which nodes and workers reach them. A worker at a
 * later point will not reach an earlier barrier any more. */
typedef enum ligi_barrier_kind {
    LIGI_BARRIER_PLAIN = 0,
    LIGI_BARRIER_FINALIZE = 1,
    LIGI_BARRIER_SHUTDOWN = 2, /* nodes only; counts as finalized */
} ligi_barrier_kind;

/* Of the node's workers; guarded by its own mutex, the innermost one. */
typedef struct ligi_node_barrier_state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t inside[LIGI_BARRIER_SHUTDOWN]; /* by occasion */
    uint32_t generation;
    int leading;           /* all have arrived, and the last one waits for the other nodes */
    int64_t *deadlines_ns; /* [worker_count]; INT64_MAX: not waiting */
    ligi_failure outcome;  /* of the last generation */
} ligi_node_barrier_state;

struct lig_params {
    ligi_session session; /* without an endpoint on a single node */
    uint32_t role, rank, node_count, worker_count, techniques, flags;
    int64_t timeout_ns, round_ns;
    int (*patience)(void *context); /* NULL, or polled by waiting threads; without locks */
    void *patience_context;
    ligi_tables *tables;          /* NULL: a scheduler */
    ligi_team *team;              /* of its workers, for large batches */
    uint64_t region_bytes;        /* words and rows of this node, if peers may map them */
    _Atomic uint64_t payload_max; /* bytes of a message */
    ligi_params_hello hello;

    pthread_mutex_t lock; /* of a single node; otherwise the endpoint's */
    pthread_cond_t changed;
    ligi_params_peer *peers;     /* [node_count]; the one of this rank is not used */
    lig_params_worker **workers; /* [worker_count]; NULL: not opened, or closed */
    ligi_node_barrier_state barrier;
    ligi_send_buffer
        *buffers[LIGI_SEND_BUFFER_ORDERS]; /* free buffers, by the logarithm of their size */
    uint64_t buffer_bytes;
    uint64_t sync_bytes;        /* sync messages not sent yet, or lent and not returned */
    ligi_send_buffer *given_up; /* lent for requests that nobody waits for any more */
    int64_t first_ticket; /* of the next worker, greater than LIG_PARAMS_SHARED: numbers are never
                             reused, so that a late response never reaches another worker of the
                             same id */
    ligi_serve_scratch serve_scratch;

    _Atomic int departed;    /* all have agreed to leave: no node answers any more */
    int made;                /* the tables exist: requests can be served */
    lig_params_stats totals; /* counters of closed workers, and those kept under the lock */
    lig_params_stats zero;   /* at the last reset */
    struct ligi_sync *sync;
    struct ligi_sampling *sampling;
    struct ligi_snapshot_state *snapshot; /* a save or load in progress: snapshot.h */
};

static inline int ligi_node_alone(const lig_params *node)
{
    return node->session.net == NULL;
}

/* 1 if shutdown has advanced so far that nothing can be waited for. With or without the lock. */
static inline int ligi_node_has_departed(const lig_params *node)
{
    return atomic_load_explicit(&node->departed, memory_order_acquire) ||
           atomic_load_explicit(&node->session.closed, memory_order_acquire);
}

#endif
