/* How the members of a group connect to each other. Of two members, the one with the greater (role,
 * rank) connects: workers to servers, nodes to those of lower rank. */
#ifndef LIGI_SESSION_MEET_H
#define LIGI_SESSION_MEET_H

#include "group/session/session.h"

/* Checks the peers that have connected early, connects to the others, and waits until all that are
 * in the group have met this process. Watches the group from here on. TIMEOUT and PEER name the
 * first peer that is missing. */
lig_status ligi_session_meet(ligi_session *session);

/* For the links of the module's service; the context is the session. */
extern const ligi_net_hooks ligi_session_hooks;

#endif
