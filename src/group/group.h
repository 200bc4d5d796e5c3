/* Groups: membership. Processes meet at an address, get ranks, exchange blobs, wait for each other
 * at barriers, and are notified when a member is lost, returns or is expelled. One process, the
 * coordinator, maintains the roster (roster.h): a scheduler, or the first member. It alone decides;
 * every change is an *epoch* that it sends to all. A new member is released from ligi_group_open
 * only after all others have confirmed its epoch, so any member it connects to knows it already. A
 * seat is (role, rank). Its *incarnation* counts its holders, from 1: a restarted worker has the
 * same rank and the next incarnation, and late messages of the previous one are stale. A group runs
 * on an endpoint of net, as its service LIGI_SERVICE_GROUP: one group per endpoint. Heartbeats must
 * be sent regardless of what the callers do, so the endpoint has a background thread. Calls are
 * **shared**; all state is guarded by the endpoint's lock. */
#ifndef LIGI_GROUP_H
#define LIGI_GROUP_H

#include "base/codec.h"
#include "net/net.h"

#define LIGI_ROLES 3
typedef enum ligi_role {
    LIGI_SERVER = 0,
    LIGI_WORKER = 1,
    LIGI_SCHEDULER = 2, /* rank 0, at most one; holds no tensors */
} ligi_role;

#define LIGI_SERVERS 1u /* bits of a barrier's mask: 1u << role */
#define LIGI_WORKERS 2u

#define LIGI_RANK_ANY UINT32_MAX
#define LIGI_BLOB_BYTES_MAX 1024
#define LIGI_HOST_BYTES 64
#define LIGI_MEMBERS_MAX 4096

typedef enum ligi_member_state {
    LIGI_AWAITED = 0, /* has not joined yet */
    LIGI_PRESENT = 1,
    LIGI_LOST = 2, /* its connection ended, or it was silent for liveness_ms; it may rejoin */
    LIGI_LEFT = 3, /* it left in order; it may rejoin */
} ligi_member_state;

typedef struct ligi_member {
    ligi_role role;
    uint32_t rank;
    ligi_member_state state;
    uint32_t incarnation; /* 0 while awaited */
    uint32_t pid;
    char host[LIGI_HOST_BYTES];
} ligi_member;

/* Which process runs the rendezvous. */
typedef enum ligi_group_seat {
    LIGI_COORDINATOR_BY_ROLE = 0, /* the scheduler listens, the others connect */
    LIGI_COORDINATOR_SELF = 1,    /* this process listens; the address must be free */
    LIGI_COORDINATOR_OTHER = 2,   /* connects only */
    /* Scheduler and the first member (server 0, or worker 0 if there are no servers) listen if they
     * can, and otherwise join the process that has the address; all others connect. For groups that
     * do not know whether there will be a scheduler. */
    LIGI_COORDINATOR_FIRST = 3,
} ligi_group_seat;

typedef enum ligi_group_change {
    LIGI_CHANGE_JOINED, /* member is PRESENT; its blob may have changed */
    LIGI_CHANGE_GONE,   /* member is LOST or LEFT: its outstanding messages will not arrive */
    /* This process was expelled, or the coordinator has been silent for so long that this process
     * must have been expelled. All calls fail from now on, with that error text. */
    LIGI_CHANGE_EXPELLED,
    /* The coordinator has ended. As EXPELLED; in addition, silent members are no longer detected,
     * so waits for them without a deadline must be abandoned. */
    LIGI_CHANGE_ORPHANED,
} ligi_group_change;

typedef struct ligi_group_event {
    ligi_group_change change;
    ligi_member member;   /* of JOINED and GONE */
    const char *sentence; /* why, for GONE, EXPELLED, ORPHANED; borrowed for the call */
} ligi_group_event;

/* Called like the hooks of net: with the lock held, on the driving thread; must not block, wait or
 * close. */
typedef void (*ligi_group_hook)(void *context, const ligi_group_event *event);

/* The caller's all-gather (MPI_Allgather, a PMIx fence): fills `all` with `count` x `bytes`, in the
 * order of `index` (options below). Called once by ligi_group_open, on the caller's thread. */
typedef lig_status (*ligi_group_exchange)(void *context, const void *mine, size_t bytes, void *all,
                                          size_t count);

typedef struct ligi_group_options { /* everything is borrowed by ligi_group_open */
    ligi_role role;
    uint32_t rank; /* LIGI_RANK_ANY: assigned among the free ones */
    /* Total number of instances (for W groups of G: W x G). The same on all members. */
    uint32_t worker_count, server_count;
    uint32_t group_size; /* instances of a group; rank = group * group_size + instance; 0 means 1 */
    ligi_group_seat coordinator;
    const char *address;  /* a URI of net: tcp://host:port, shm:NAME, inproc:NAME; port 0 where this
                            process is known to coordinate */
    const char *host;     /* the address of this host as seen by others; NULL: as the coordinator
                          * sees it */
    int64_t timeout_ns;   /* of open; LIG_FOREVER is rejected */
    uint32_t liveness_ms; /* the coordinator's value applies to all; 0 means 10,000 */
    /* Instead of a known address: process 0 listens at `address` (NULL: on all interfaces if the
     * endpoint has a secret, otherwise on this host only), coordinates, and the callback
     * distributes the address. `coordinator` is ignored. */
    ligi_group_exchange exchange;
    void *exchange_context;
    uint32_t exchange_index, exchange_count;

    /* Or NULL: polled ten times a second by open and barrier without locks; 0 ends them: CLOSED. */
    int (*patience)(void *context);
    void *patience_context;
} ligi_group_options;

typedef struct ligi_group ligi_group;

/* Joins and waits until all members have joined. Errors: EXISTS if the rank is taken (and by whom),
 * INVALID if the counts or the rank do not fit, TIMEOUT naming the missing members, PEER if the
 * coordinator is lost, DENIED for a wrong secret. Logs whom it waits for. A process that joins a
 * running group takes the seat of a member that was lost or has left. `net` is borrowed until close
 * and must outlive the group. */
lig_status ligi_group_open(ligi_group **group, ligi_net *net, const ligi_group_options *options);

/* Leaves and frees. A coordinator first serves until all others have left or are lost, at most
 * `linger_ns` (LIG_FOREVER: as long as they live), then notifies those that remain. NULL is
 * valid. */
void ligi_group_close(ligi_group *group, int64_t linger_ns);
/* The first half of close; TIMEOUT if some are left. On other members: OK at once. */
lig_status ligi_group_linger(ligi_group *group, int64_t timeout_ns);

/* 0 to 3. Members at a later stage do not go back: they count as arrived at a stage between, and a
 * wait for them at stage 0 is INVALID, naming them. */
#define LIGI_BARRIER_STAGE(stage) ((stage) << 2)

#define LIGI_GROUP_URI_BYTES 1024

/* Queues a message within the process. */
void ligi_group_inner(ligi_group *group, int to_coordinator, const ligi_writer *writer);
/* ligi_net_wait, which also polls `patience`. */
lig_status ligi_group_wait(ligi_group *group, int (*until)(void *), void *context,
                           int64_t timeout_ns);

#endif
