/* One peer of a session, from its hello to its end: doubt, silence, loss. It needs no group. Called
 * with the endpoint's lock held. */
#ifndef LIGI_SESSION_PEER_H
#define LIGI_SESSION_PEER_H

#include "group/session/session.h"

/* From now on it is connected, checked and disconnected like the others. */
void ligi_session_add(ligi_session_peer *peer);
/* Undoes it, for a peer without a link; also in the module's `gone` of this peer. */
void ligi_session_remove(ligi_session_peer *peer);
/* Starts to connect: `to` has an address or a card, and a timeout; the rest is filled here. The
 * module's `came` or `gone` reports the result. */
lig_status ligi_session_connect(ligi_session_peer *peer, const ligi_connect *to);
/* Its link is up and has sent this claim. */
void ligi_session_came(ligi_session_peer *peer, ligi_link *link, const ligi_session_claim *claim,
                       const ligi_hello *hello);
/* Closes its link, if it has one; it is LOST or has LEFT. */
void ligi_session_drop(ligi_session_peer *peer, ligi_member_state state, const char *why);
/* Its link has ended: it is gone, or postponed. */
void ligi_session_link_lost(ligi_link *link, lig_status status, const char *sentence);
/* It was reported as LOST or LEFT: it is dropped later, unless its link reports a reason first. */
void ligi_session_suspect(ligi_session_peer *peer, ligi_member_state state, const char *why);
/* From now on this process detects silent peers itself. */
void ligi_session_watch(ligi_session *session);
/* Ends doubts and detects silence; returns when it must be called next. */
int64_t ligi_session_judge(ligi_session *session, int64_t now_ns);

/* "server 2 is lost: ...", "server 2 has left: ...". */
void ligi_session_peer_text(const ligi_session_peer *peer, char text[LIGI_SESSION_TEXT_BYTES]);
/* The same as LIG_E_PEER. */
lig_status ligi_session_peer_fail(const ligi_session_peer *peer);

#endif
