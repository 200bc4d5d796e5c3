/* Internal state of a mesh. Guarded by the endpoint's lock (ligi_net_lock), which is held when
 * hooks are called. */
#ifndef LIGI_MESH_H
#define LIGI_MESH_H

#include "base/error.h"
#include "group/group.h"
#include "mesh/server_requests.h"
#include "mesh/trace/clock_offset.h"
#include "mesh/trace/stamp_clock.h"
#include "mesh/trace/trace_recorder.h"
#include "mesh/worker_requests.h"

#include <pthread.h>

typedef struct ligi_party { /* a member that this one talks to: a server, or a worker */
    lig_mesh *mesh;
    uint32_t index; /* its group: the rank that callers see */
    uint32_t rank;
    uint32_t incarnation;
    uint64_t group_id; /* as it says; 0 from a server that does not know it yet */
    uint32_t state;    /* lig_mesh_state */
    ligi_link *link;   /* NULL: none */
    uint32_t pings;    /* to be connected */
    ligi_clock_offset offset;
    int64_t doubt_ns;     /* the group reports it lost: the link is closed then; 0: not suspected */
    uint32_t doubt_state; /* what it is then */
    int postponed;        /* its link has ended, perhaps for another reason: see on_lost */
    char why[LIGI_WHY_BYTES]; /* it is lost, or suspected */
} ligi_party;

struct lig_mesh {
    uint8_t *here;             /* 1; on a separate page that the kernel zeroes in a forked child */
    uint32_t role, rank, lane; /* lane: position within the group; the same at both ends of a
                                * link */
    uint32_t worker_count, server_count, group_size;
    ligi_net *net;
    ligi_party *parties;
    uint32_t party_count;
    uint8_t boot_id[16];
    char transport[16]; /* "auto", or the requested one */
    int64_t timeout_ns; /* of open */

    pthread_rwlock_t group_lock; /* written by stop, which takes the group away */
    ligi_group *group;

    int64_t orphan_ns; /* since when this member must detect silence; 0: the group does */
    int64_t judged_ns, pinged_ns, liveness_ns; /* after the coordinator was lost */
    uint64_t group_id;                         /* 0 until the group is open */
    int stopped;                               /* by stop */
    uint32_t postponed;                        /* parties that are */
    ligi_failure ended;                        /* this member was expelled: every call returns
                                                * this */
    ligi_server_requests inbox;                /* servers */
    ligi_job **taken;                          /* [worker_count], for get_batch */
    ligi_worker_requests outbox;               /* workers */
    uint8_t *head;                             /* LIGI_MESSAGE_BYTES_MAX, for one send at a time */
    uint32_t answering;                        /* jobs whose responses are borrowed */
    int news;       /* a worker is lost, and get_batch has not been called since */
    uint32_t mode;  /* of the last get_batch: what the event descriptor signals */
    int bell, rung; /* an eventfd, or -1; whether it is readable */
    ligi_trace_recorder recorder;
    ligi_stamp_clock ticks; /* of the stamps */
    lig_mesh_stats stats;
};

/* CLOSED in a forked child and after stop. With or without the lock. */
lig_status ligi_mesh_check(lig_mesh *mesh);
/* Checks and locks; PEER if expelled. On failure it is unlocked. */
lig_status ligi_mesh_enter(lig_mesh *mesh);
void ligi_mesh_leave(lig_mesh *mesh);
/* Between the two: what enter would return now. */
lig_status ligi_mesh_usable(lig_mesh *mesh);
/* Now, as a stamp. With the lock. */
uint64_t ligi_mesh_stamp(lig_mesh *mesh);
/* Makes the event descriptor readable if there is something for the caller to do, and unreadable if
 * not. */
void ligi_mesh_ring(lig_mesh *mesh);

/* Checks a tensor to be sent; `what` and index i are for error texts. Host memory only. */
lig_status ligi_mesh_check_tensor(const lig_tensor *tensor, const char *what, size_t i);

/* "server 2", "worker 0": for error texts. */
const char *ligi_party_role(const ligi_party *party);
/* The error text of a peer that is not present, as LIG_E_PEER. */
lig_status ligi_party_fail(const ligi_party *party);

/* The hooks of its links (mesh_connect.c). */
extern const ligi_net_hooks ligi_mesh_hooks;

#endif
