/* Sessions: what a client holds, and how much of the server it may use. */
#ifndef LIGI_SERVER_SESSION_H
#define LIGI_SERVER_SESSION_H

#include "store/serve/server/server_state.h"

/* With one user, which is the server's list. The endpoint's lock is held. */
lig_status ligi_served_session_open(lig_server *server, ligi_link *link, const ligi_hello *hello,
                                    ligi_served_session **out);
void ligi_served_session_hold(ligi_served_session *session);
/* Never blocks: what is held was released by then. */
void ligi_served_session_drop(ligi_served_session *session);
/* Closes the link, tells those that wait for the client, and leaves the release of what it holds to
 * a worker. The endpoint's lock is held. Does nothing when it has ended. */
void ligi_served_session_end(ligi_served_session *session, const char *reason);

/* --- bytes in flight --- */

/* LIG_E_BUSY when the client or all together have too many. */
lig_status ligi_served_charge(ligi_served_session *session, uint64_t bytes);
/* The same for a reply whose size is known only when it is made: a single one may be larger than
 * the limits. */
lig_status ligi_served_charge_reply(ligi_served_session *session, uint64_t bytes);
/* Counts without a limit. */
void ligi_served_charge_anyway(ligi_served_session *session, uint64_t bytes);
void ligi_served_uncharge(ligi_served_session *session, uint64_t bytes);

/* --- what a client holds until RELEASE or the end of its session --- */

/* Counted, because a request may use it while another releases it. `release` may block. */
struct ligi_served_held {
    uint64_t number;
    atomic_int users;
    lig_server *server;
    void (*release)(void *thing);
    void *thing;
    uint64_t bytes;
};

/* Takes over `thing`, which has so many bytes of memory: on failure, and if the session has ended,
 * it is released. LIG_E_LIMIT when the client holds too much. */
lig_status ligi_served_hold(ligi_served_session *session, void *thing, uint64_t bytes,
                            void (*release)(void *thing), uint64_t *number);
/* LIG_E_LIMIT if it cannot hold so many more bytes. */
lig_status ligi_served_may_hold(ligi_served_session *session, uint64_t bytes);
/* What has this number and is released by `release`; NULL: there is none. ligi_served_let_go. */
ligi_served_held *ligi_served_held_get(ligi_served_session *session, uint64_t number,
                                       void (*release)(void *thing));
void ligi_served_let_go(ligi_served_held *held);
/* RELEASE; an unknown number is ignored. */
void ligi_served_release(ligi_served_session *session, uint64_t number);

/* --- requests that run, for CANCEL --- */

void ligi_served_running_add(ligi_served_job *job);
void ligi_served_running_remove(ligi_served_job *job);
void ligi_served_running_cancel(ligi_served_session *session, uint64_t id);

#endif
