/* How a session ends before the module closes it. Called with the endpoint's lock held. */
#ifndef LIGI_SESSION_END_H
#define LIGI_SESSION_END_H

#include "group/session/session.h"

/* Ends it; later calls have no effect. */
void ligi_session_end(ligi_session *session, lig_status status, const char *sentence);
/* The session ends after LIGI_LOSS_GRACE_NS, for this reason unless a peer or the group gives a
 * better one by then. Not while it is leaving. */
void ligi_session_doubt(ligi_session *session, const char *sentence);
/* Something with a peer has failed: ends the session, or only doubts it while this process is
 * waking. */
void ligi_session_fail(ligi_session *session, lig_status status, const char *sentence);
/* 1 if this process was stopped for so long that the group may have expelled it: it finds its links
 * closed, and the group's verdict comes first. */
int ligi_session_waking(ligi_session *session);

#endif
