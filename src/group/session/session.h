/* A module's session with its peers: joining a group, connecting, doubt, loss, barriers, leaving.
 * The mesh and the parameter manager are built on it.
 *
 * What counts as a failure, for every module:
 *   - A peer whose link ends with a goodbye has LEFT. Any other end of the link: it is LOST.
 *   - The link has precedence. If the group reports that a peer is lost, the peer is suspected for
 *     LIGI_LOSS_GRACE_NS, during which its link may report the reason. A peer that the group
 *     reports as having left may still have messages in its link: it is gone when the link ends or
 *     has been silent for liveness_ns.
 *   - A process that was stopped does not judge others at once: a link that ends while it wakes is
 *     postponed by the same period, because the group may have expelled it.
 *   - A session with `needs_all` ends with the first peer that is lost, or that leaves before this
 *     process does, and with the coordinator. Any other session continues: the next incarnation of
 *     the peer may connect, and after the loss of the coordinator the session detects silent peers
 *     itself, with pings.
 *   - An expelled process: the session ends.
 * The end of a session is final: `broken` is set, and `ended` says why (LIG_E_PEER, or
 * LIG_E_MISMATCH).
 *
 * Everything is guarded by the endpoint's lock, which is held when the module's functions are
 * called. */
#ifndef LIGI_SESSION_H
#define LIGI_SESSION_H

#include "base/error.h"
#include "group/group.h"

#include <pthread.h>
#include <stdatomic.h>

#define LIGI_SESSION_WHY_BYTES 256
#define LIGI_SESSION_TEXT_BYTES (LIGI_SESSION_WHY_BYTES + 64)

typedef struct ligi_session ligi_session;

/* Embedded in the module's own struct of a peer, which sets the first five before it is added. */
typedef struct ligi_session_peer {
    ligi_session *session;
    const char *noun; /* with the index in error texts: "server 2" */
    uint32_t index;
    ligi_role role;
    uint32_t rank;

    struct ligi_session_peer *next;
    uint32_t incarnation;
    uint64_t group_id; /* as the peer reports it; 0: not known to it yet */
    ligi_member_state state;
    ligi_link *link;               /* NULL: none; it may not be up yet, or have ended (postponed) */
    int64_t doubt_ns;              /* it is suspected until then; 0: it is not */
    ligi_member_state doubt_state; /* what it is then */
    int postponed;                 /* its link has ended while this process was waking */
    char why[LIGI_SESSION_WHY_BYTES]; /* it is suspected, lost, or has left */
} ligi_session_peer;

/* Who a peer says it is. */
typedef struct ligi_session_claim {
    ligi_role role;
    uint32_t rank; /* LIGI_RANK_ANY: not known yet */
    uint32_t incarnation;
    uint64_t group_id;
} ligi_session_claim;

/* What the module does. `context` is that of the options. */
typedef struct ligi_session_ops {
    ligi_service service;
    const char *name;            /* "mesh": separates the secrets of modules */
    const char *forked, *closed; /* error texts of ligi_session_check */
    int needs_all;
    /* Fills this process's hello. */
    void (*greet)(void *context, ligi_reply *own);
    /* Checks a hello, of either side; a failure refuses the peer. */
    lig_status (*check)(void *context, const ligi_hello *hello, ligi_session_claim *claim);
    /* The peer that connects with this claim. */
    lig_status (*find)(void *context, const ligi_session_claim *claim, ligi_session_peer **peer);
    /* Its link is up. Its state has not changed yet. */
    void (*came)(ligi_session_peer *peer, const ligi_hello *hello);
    /* It is lost or has left (state and why are set), and has no link. */
    void (*gone)(ligi_session_peer *peer, ligi_member_state before);
    /* The session has ended. */
    void (*ended)(void *context);
    /* Makes the peer send something. NULL with needs_all. */
    void (*ping)(ligi_session_peer *peer);
    /* As in ligi_net_hooks. Only with a peer whose link it is, and a token. tick may be NULL. */
    lig_status (*head)(ligi_session_peer *peer, const ligi_arrival *arrival, ligi_landing *landing);
    void (*arrived)(ligi_session_peer *peer, void *token);
    void (*sent)(ligi_session_peer *peer, void *token, lig_status status);
    int64_t (*tick)(void *context, int64_t now_ns);
} ligi_session_ops;

struct ligi_session {
    const ligi_session_ops *ops;
    void *context;
    uint8_t *here; /* ligi_fork_mark_here */
    ligi_net *net; /* NULL: not opened */
    char transport[16];
    int64_t deadline_ns; /* of open and meet */
    ligi_session_peer *peers;

    pthread_rwlock_t group_lock; /* written by leave, which takes the group away */
    ligi_group *group;           /* NULL: not joined yet, or left */
    uint64_t group_id;

    int64_t liveness_ns;
    int watching; /* this process detects silent peers itself */
    int64_t awake_ns, judged_ns, pinged_ns;
    uint32_t postponed; /* peers that are */
    int leaving;        /* peers may leave */
    _Atomic int closed; /* set by the module: no new call may begin */
    _Atomic int broken; /* `ended` is set and no longer changes */
    ligi_failure ended;
    int64_t doubt_ns; /* it ends then, for this reason unless a better one arrives; 0: never */
    char doubt[LIGI_SESSION_TEXT_BYTES];
};

typedef struct ligi_session_options { /* borrowed by open */
    ligi_net_options net;             /* group, fabric and background are the session's */
    /* Without timeout_ns and liveness_ms. address may be "host:port". */
    ligi_group_options group;
    int64_t timeout_ns;             /* of open and meet; 0: one minute; LIG_FOREVER is valid */
    int64_t liveness_ns;            /* 0: the default of a group */
    const char *transport;          /* NULL: "auto" */
    int trusted_fabric, any_device; /* as in ligi_group_fabric */
    int listens;
} ligi_session_options;

/* After init, fini is valid whatever failed; the struct is zeroed before. */
lig_status ligi_session_init(ligi_session *session, const ligi_session_ops *ops, void *context);
/* Leaves, closes the endpoint and frees. 0 in a forked child: it frees memory only, and so must the
 * module, since other threads may have held its locks. */
int ligi_session_fini(ligi_session *session);

/* Opens the endpoint, serves the module's links, listens, joins the group. A scheduler serves no
 * links. Peers may connect from here on, before the group has released this process; they are
 * checked by meet. */
lig_status ligi_session_open(ligi_session *session, const ligi_session_options *options);

/* CLOSED in a forked child. With or without the lock, like the next two. */
lig_status ligi_session_mine(const ligi_session *session);
/* Also once `closed` is set. */
lig_status ligi_session_check(const ligi_session *session);
/* Also what ended the session. */
lig_status ligi_session_usable(const ligi_session *session);

/* The group stays valid until release; NULL, with CLOSED as the error, if it has been left. */
ligi_group *ligi_session_hold(ligi_session *session);
void ligi_session_release(ligi_session *session);
/* ligi_group_barrier. A session that ends meanwhile: what ended it. */
lig_status ligi_session_barrier(ligi_session *session, uint32_t mask, uint32_t flags,
                                int64_t timeout_ns);

/* Ends all links, with `reason` or what ended the session, and all barriers. */
void ligi_session_disconnect(ligi_session *session, const char *reason);
/* ligi_group_linger; OK without a group. */
lig_status ligi_session_linger(ligi_session *session, int64_t timeout_ns);
/* Leaves the group. */
void ligi_session_leave(ligi_session *session);

#endif
