/* Who a client is, and what it may do here. */
#ifndef LIGI_SERVER_ROLES_H
#define LIGI_SERVER_ROLES_H

#include "store/serve/server/server_state.h"

/* Reads the secret file, if there is one; before the first client. */
lig_status ligi_served_roles_open(lig_server *server);
/* Gives the endpoint the keys of all roles. The endpoint's lock is not held. */
lig_status ligi_served_roles_accept(lig_server *server);
/* Reads the file again. Sessions whose role has changed or gone end. On failure nothing changes. */
lig_status ligi_served_roles_reload(lig_server *server);
void ligi_served_roles_close(lig_server *server);

/* The role of a client that connects: by the key that it has proved or, over shared memory, by the
 * pass that another session of it got. Without a secret file everybody is an admin. LIG_E_DENIED.
 * The endpoint's lock is held. */
lig_status ligi_served_role_of(lig_server *server, const ligi_link *link,
                               const ligi_served_hello *hello, ligi_served_role *role);
/* A fresh pass, if the client may need one. */
lig_status ligi_served_pass_make(ligi_served_session *session);

/* LIG_E_DENIED, which is logged, unless the session's role may use the operation. Any thread. */
lig_status ligi_served_may(ligi_served_session *session, uint32_t op);
/* The same for the models, aliases and locks that the call's request names; NULL names none. */
lig_status ligi_served_may_name(ligi_served_call *call, const char *name);
/* Logs a LIG_E_DENIED with this thread's error text; returns the status. */
lig_status ligi_served_denied(ligi_served_session *session, lig_status status);
/* The prefix of the models that a session sees, for lig_store.scope; NULL: all. */
const char *ligi_served_scope(const ligi_served_session *session);

#endif
