/* Groups: who is there. Processes meet at an address, get ranks, learn each other's blobs, wait
 * for each other at barriers, and are told when somebody is lost, comes back or was expelled.
 *
 * One process, the coordinator, keeps the roster (roster.h): a scheduler, or the first of the
 * members. It alone decides; every change is an *epoch* that it tells to all. A member that comes
 * is released from ligi_group_open only when all the others have confirmed the epoch it came in,
 * so whoever it connects to knows it already.
 *
 * A seat is (role, rank). Its *incarnation* counts who has sat there, from 1: a restarted worker
 * has the same rank and the next incarnation, and what still comes from the one before is stale.
 *
 * A group lives on an endpoint of net, as its service LIGI_SERVICE_GROUP: one group an endpoint.
 * Beats must go out whatever the callers do, so the endpoint has a background thread. Calls are
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
#define LIGI_SCHEDULERS 4u

#define LIGI_RANK_ANY UINT32_MAX
#define LIGI_BLOB_BYTES_MAX 1024
#define LIGI_HOST_BYTES 64
#define LIGI_MEMBERS_MAX 4096

typedef enum ligi_member_state {
    LIGI_AWAITED = 0, /* has not come yet */
    LIGI_PRESENT = 1,
    LIGI_LOST = 2, /* its connection ended, or it was silent for liveness_ms; it may come again */
    LIGI_LEFT = 3, /* it said goodbye; it may come again */
} ligi_member_state;

typedef struct ligi_member {
    ligi_role role;
    uint32_t rank;
    ligi_member_state state;
    uint32_t incarnation; /* 0 while awaited */
    uint32_t pid;
    char host[LIGI_HOST_BYTES];
} ligi_member;

/* Who runs the rendezvous. */
typedef enum ligi_group_seat {
    LIGI_COORDINATOR_BY_ROLE = 0, /* the scheduler listens, the others connect */
    LIGI_COORDINATOR_SELF = 1,    /* this process listens; the address must be free */
    LIGI_COORDINATOR_OTHER = 2,   /* connects only */
    /* Scheduler and the first member (server 0, or worker 0 where there are no servers) listen if
     * they can, and join whoever has the address otherwise; all others connect. For groups that do
     * not know whether there will be a scheduler. */
    LIGI_COORDINATOR_FIRST = 3,
} ligi_group_seat;

typedef enum ligi_group_change {
    LIGI_CHANGE_JOINED, /* member is PRESENT; its blob may be another than before */
    LIGI_CHANGE_GONE,   /* member is LOST or LEFT: what it owed will not come */
    /* This process is out: it was expelled, or the coordinator has been silent for so long that it
     * must have been. All calls fail from now on, with the sentence. */
    LIGI_CHANGE_EXPELLED,
    /* The coordinator has ended. Likewise; and nobody watches any more who of the others is silent,
     * so whoever waits for them without a deadline must give up. */
    LIGI_CHANGE_ORPHANED,
} ligi_group_change;

typedef struct ligi_group_event {
    ligi_group_change change;
    uint64_t epoch;
    ligi_member member;   /* of JOINED and GONE */
    const char *sentence; /* why, for GONE, EXPELLED, ORPHANED; borrowed for the call */
} ligi_group_event;

/* Called like the hooks of net: with the lock held, on the thread that drives; must not block, wait
 * or close. */
typedef void (*ligi_group_hook)(void *context, const ligi_group_event *event);

/* An all-gather of the user's (MPI_Allgather, a PMIx fence): fills `all` with `count` x `bytes`, in
 * the order of `index` (options below). Called once by ligi_group_open, on the caller's thread. */
typedef lig_status (*ligi_group_exchange)(void *context, const void *mine, size_t bytes, void *all);

typedef struct ligi_group_options { /* everything is borrowed for ligi_group_open */
    ligi_role role;
    uint32_t rank; /* LIGI_RANK_ANY: one that nobody asked for */
    /* How many instances there are in all (for W groups of G: W x G). All must say the same. */
    uint32_t worker_count, server_count;
    uint32_t group_size; /* instances of a group; rank = group * group_size + instance; 0 means 1 */
    ligi_group_seat coordinator;
    const char *address; /* a URI of net: tcp://host:port, shm:NAME, inproc:NAME; port 0 where this
                            process is known to coordinate */
    const char *host;    /* what others call this host; NULL: as the coordinator sees it */
    const void *blob;    /* what the others learn of this process; NULL: the card of the endpoint */
    size_t blob_bytes;
    int64_t timeout_ns;   /* of open; LIG_FOREVER is refused */
    uint32_t liveness_ms; /* the coordinator's holds for all; 0 means 10,000 */
    /* Instead of a known address: process 0 listens at `address` (NULL: on all interfaces when the
     * endpoint has a secret, else on this host alone), coordinates, and the callback carries where.
     * `coordinator` is not looked at. */
    ligi_group_exchange exchange;
    void *exchange_context;
    uint32_t exchange_index, exchange_count;

    /* Or NULL: asked ten times a second by open and barrier without locks; 0 ends them: CLOSED. */
    int (*patience)(void *context);
    void *patience_context;
} ligi_group_options;

typedef struct ligi_group ligi_group;

/* Joins and waits until all are there. Fails with one sentence: EXISTS when the rank is taken
 * (and by whom), INVALID when the counts or the rank do not fit, TIMEOUT naming who has not come,
 * PEER when the coordinator is lost, DENIED for a wrong secret. Says in the log whom it waits for.
 * A process that comes to a group that is under way takes the seat of one that was lost or has
 * left. `net` is borrowed until close and must outlive the group. */
lig_status ligi_group_open(ligi_group **group, ligi_net *net, const ligi_group_options *options);

/* Says goodbye and frees. A coordinator first serves until all the others have left or are lost,
 * at most `linger_ns` (LIG_FOREVER: as long as they live), then tells who is left. NULL is fine. */
void ligi_group_close(ligi_group *group, int64_t linger_ns);
/* The first half of close; TIMEOUT when some are left. Not a coordinator: OK at once. */
lig_status ligi_group_linger(ligi_group *group, int64_t timeout_ns);

#define LIGI_BARRIER_GROUPS 1u /* one instance of each group is enough */
/* Who is lost or has left is not waited for; without it that is PEER at once, naming all who are
 * missing. */
#define LIGI_BARRIER_PRESENT 2u
/* 0 to 3. Members that have come to a later stage do not go back: they count as arrived at a stage
 * between, and whoever waits at stage 0 waits in vain, which is INVALID, naming them. */
#define LIGI_BARRIER_STAGE(stage) ((stage) << 2)

#define LIGI_GROUP_URI_BYTES 1024

/* Queues a message within the process. */
void ligi_group_inner(ligi_group *group, int to_coordinator, const ligi_writer *writer);
/* ligi_net_wait as long as the caller has patience. */
lig_status ligi_group_wait(ligi_group *group, int (*until)(void *), void *context,
                           int64_t timeout_ns);
/* Does all that follows from what has been queued. */
void ligi_group_pump(ligi_group *group);

/* Listens at `address` and keeps the roster. */
lig_status ligi_group_coordinate(ligi_group *group, const ligi_group_options *options,
                                 const char *address);
/* Begins to connect to the one who does. */
lig_status ligi_group_follow(ligi_group *group, const char *address, int64_t timeout_ns);

#endif
