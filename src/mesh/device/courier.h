/* The work of a device's streams for a mesh: copies, followed by a word that the stream writes.
 * Threads that wait in a call of the mesh poll the words and continue the tasks that waited for
 * them; if there are no such threads, a thread of the mesh does it, the courier. No call of the
 * mesh waits for a stream.
 */
#ifndef LIGI_COURIER_H
#define LIGI_COURIER_H

#include "net/net.h"

#include <pthread.h>
#include <stdatomic.h>

/* Tasks that are executed one after another, in the order in which they were added. */
typedef struct ligi_courier_order {
    uint64_t blocked; /* in this round of the thread */
    uint32_t count;   /* tasks that are not done, counted by their owner */
} ligi_courier_order;

typedef struct ligi_courier_task {
    struct ligi_courier_task *next;
    uint64_t *word; /* pinned; the task has ended when it is at least `least`. NULL: it has */
    uint64_t least;
    size_t queued;             /* copies before the word */
    ligi_courier_order *order; /* or NULL */
    /* With the endpoint's lock. A failure means that the device has failed; the error text has the
     * reason. */
    void (*done)(struct ligi_courier_task *task, lig_status status);
} ligi_courier_task;

typedef struct ligi_courier {
    ligi_net *net;
    int32_t device;
    void *stream; /* any of the device, to ask whether it has failed */
    pthread_t thread;
    int made, running;
    atomic_uint waiting;  /* tasks */
    atomic_uint helped;   /* how often a caller has polled */
    pthread_mutex_t lock; /* guards all below; taken under the endpoint's lock, never before it */
    pthread_cond_t changed;
    ligi_courier_task *first, **last;
    uint64_t round;
    uint64_t added; /* tasks so far */
    unsigned seen;  /* of `helped`: while callers poll, the thread does not */
    int asleep;     /* until it is signalled */
    int polled;     /* graphs: the endpoint is polled, and `visit` called */
    int stopping, ended;
    int (*visit)(void *context); /* without locks; 1: something happened. May be NULL */
    void *context;
} ligi_courier;

/* Zero-initialised is valid for stop. `visit` is called in every round while `polled` is not 0. */
lig_status ligi_courier_start(ligi_courier *tasks, ligi_net *net, int32_t device, void *stream);
/* Waits at most `patience_ns` for work in progress. 0: it has not ended, and its memory must not be
 * freed. Without locks. */
int ligi_courier_stop(ligi_courier *tasks, int64_t patience_ns);
/* After `stop`, when no call uses it. Zero-initialised is valid. */
void ligi_courier_fini(ligi_courier *tasks);

/* Owns the task until `done`. With the endpoint's lock. */
void ligi_courier_add(ligi_courier *tasks, ligi_courier_task *task);
/* Continues with completed tasks. With the endpoint's lock, by a waiting thread: handing the lock
 * to another thread would cost more than the copies. */
void ligi_courier_help(ligi_courier *tasks);
/* Adds to `polled`: while it is not 0 the thread drives the endpoint. */
void ligi_courier_poll(ligi_courier *tasks, int more);

#endif
