#include "group/session/session_peer.h"

#include "base/clock.h"
#include "group/roster/local_pause.h"
#include "group/roster/loss_grace.h"
#include "group/session/session_end.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/service.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { QUEUED_MAX = 16 }; /* a peer with more messages queued is not pinged */

void ligi_session_peer_text(const ligi_session_peer *peer, char text[LIGI_SESSION_TEXT_BYTES])
{
    snprintf(text, LIGI_SESSION_TEXT_BYTES, "%s %u %s: %s", peer->noun, peer->index,
             peer->state == LIGI_LEFT ? "has left" : "is lost", peer->why);
}

lig_status ligi_session_peer_fail(const ligi_session_peer *peer)
{
    char text[LIGI_SESSION_TEXT_BYTES];
    ligi_session_peer_text(peer, text);
    return lig_fail(LIG_E_PEER, "%s", text);
}

void ligi_session_add(ligi_session_peer *peer)
{
    peer->next = peer->session->peers;
    peer->session->peers = peer;
}

void ligi_session_remove(ligi_session_peer *peer)
{
    ligi_session_peer **at = &peer->session->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
}

lig_status ligi_session_connect(ligi_session_peer *peer, const ligi_connect *to)
{
    ligi_session *session = peer->session;
    ligi_connect connect = *to;
    ligi_reply own = {0};
    session->ops->greet(session->context, &own);
    connect.only = session->transport;
    connect.service = session->ops->service;
    connect.hello = own.data;
    connect.hello_bytes = own.bytes;
    connect.owner = peer;
    return ligi_net_connect(session->net, &connect, &peer->link);
}

/* --- the end of a peer --- */

/* The text names the peer already: of "server 2 closed the connection: ..." the reason is kept. */
static void note_why(ligi_session_peer *peer, const char *why)
{
    char start[96], kept[LIGI_SESSION_WHY_BYTES];
    int bytes =
        snprintf(start, sizeof start, "%s %u closed the connection: ", peer->noun, peer->index);
    snprintf(kept, sizeof kept, "%s", strncmp(why, start, (size_t)bytes) == 0 ? why + bytes : why);
    memcpy(peer->why, kept, sizeof kept); /* `why` may be peer->why */
}

static void end_doubt(ligi_session_peer *peer)
{
    peer->doubt_ns = 0;
    peer->session->postponed -= peer->postponed != 0;
    peer->postponed = 0;
}

static void set_gone(ligi_session_peer *peer, ligi_member_state state, const char *why)
{
    ligi_session *session = peer->session;
    ligi_member_state before = peer->state;
    char text[LIGI_SESSION_TEXT_BYTES];
    assert(peer->link == NULL && (state == LIGI_LOST || state == LIGI_LEFT));
    end_doubt(peer);
    peer->state = state;
    note_why(peer, why);
    session->ops->gone(peer, before);
    if (!session->ops->needs_all || (session->leaving && state == LIGI_LEFT))
        return;
    ligi_session_peer_text(peer, text);
    ligi_session_end(session, LIG_E_PEER, text);
}

/* Its messages are returned before the peer is gone. */
void ligi_session_drop(ligi_session_peer *peer, ligi_member_state state, const char *why)
{
    ligi_link *link = peer->link;
    peer->link = NULL;
    ligi_link_close(link, why);
    set_gone(peer, state, why);
}

void ligi_session_came(ligi_session_peer *peer, ligi_link *link, const ligi_session_claim *claim,
                       const ligi_hello *hello)
{
    char name[64];
    assert(peer->state != LIGI_PRESENT && (peer->link == NULL || peer->link == link));
    end_doubt(peer);
    peer->link = link;
    peer->group_id = claim->group_id;
    if (claim->incarnation != 0) /* it may not know its own yet; the group does */
        peer->incarnation = claim->incarnation;
    snprintf(name, sizeof name, "%s %u", peer->noun, peer->index);
    ligi_link_set_owner(link, peer);
    ligi_link_set_name(link, name);
    peer->session->ops->came(peer, hello);
    peer->state = LIGI_PRESENT;
}

/* --- doubt --- */

static void set_doubt(ligi_session_peer *peer, ligi_member_state state, const char *why)
{
    assert(state == LIGI_LOST || state == LIGI_LEFT);
    peer->doubt_ns = ligi_grace_end_ns(ligi_now_ns());
    peer->doubt_state = state;
    note_why(peer, why);
    ligi_net_hurry(peer->session->net, peer->session->ops->service);
}

void ligi_session_suspect(ligi_session_peer *peer, ligi_member_state state, const char *why)
{
    if (peer->doubt_ns == 0 && peer->state != LIGI_LOST && peer->state != LIGI_LEFT)
        set_doubt(peer, state, why);
}

/* A process that was expelled while it was stopped finds its links closed: the group's verdict
 * comes first. The ended link is kept until then. */
void ligi_session_link_lost(ligi_link *link, lig_status status, const char *sentence)
{
    ligi_session_peer *peer = ligi_link_owner(link);
    ligi_member_state state = status == LIG_E_CLOSED ? LIGI_LEFT : LIGI_LOST;
    char why[LIGI_ERROR_TEXT_BYTES];
    if (peer == NULL || peer->link != link) {
        ligi_link_close(link, NULL);
        return;
    }
    ligi_session *session = peer->session;
    if (peer->state == LIGI_PRESENT && ligi_session_waking(session)) {
        session->postponed += !peer->postponed;
        peer->postponed = 1;
        set_doubt(peer, state, sentence);
        return;
    }
    snprintf(why, sizeof why, "%s", sentence); /* of the link */
    peer->link = NULL;
    ligi_link_close(link, NULL);
    if (status == LIG_E_MISMATCH && session->ops->needs_all) /* joining again is pointless */
        ligi_session_end(session, status, why);
    set_gone(peer, state, why);
}

static int64_t judge_doubt(ligi_session_peer *peer, int64_t now_ns)
{
    int64_t end = peer->doubt_ns;
    if (end != 0 && peer->doubt_state == LIGI_LEFT && peer->link != NULL && !peer->postponed) {
        int64_t silent = ligi_link_heard_ns(peer->link) + peer->session->liveness_ns;
        end = silent > end ? silent : end;
    }
    if (!ligi_grace_is_over(end, now_ns))
        return ligi_grace_next_ns(end, INT64_MAX);
    ligi_session_drop(peer, peer->doubt_state, peer->why);
    return INT64_MAX;
}

/* --- silence --- */

void ligi_session_watch(ligi_session *session)
{
    session->watching = 1;
    session->awake_ns = session->judged_ns = ligi_now_ns();
    ligi_net_hurry(session->net, session->ops->service);
}

/* 1 if it is lost. */
static int judge_silence(ligi_session_peer *peer, int64_t now_ns, int ping)
{
    const ligi_session *session = peer->session;
    char why[LIGI_SESSION_WHY_BYTES];
    if (peer->link == NULL || peer->state != LIGI_PRESENT)
        return 0;
    int64_t silent =
        ligi_pause_silence_ns(ligi_link_heard_ns(peer->link), session->awake_ns, now_ns);
    if (silent <= session->liveness_ns) {
        if (ping && ligi_link_queued(peer->link) < QUEUED_MAX)
            session->ops->ping(peer);
        return 0;
    }
    snprintf(why, sizeof why, "it has been silent for %lld ms", (long long)(silent / 1000000));
    ligi_session_drop(peer, LIGI_LOST, why);
    return 1;
}

/* A process that was stopped first reads what has arrived meanwhile, as in the group. */
static int is_ping_due(ligi_session *session, int64_t now_ns)
{
    if (ligi_pause_detect(session->judged_ns, now_ns, session->liveness_ns))
        session->awake_ns = now_ns;
    session->judged_ns = now_ns;
    if (now_ns - session->pinged_ns < ligi_pause_beat_ns(session->liveness_ns))
        return 0;
    session->pinged_ns = now_ns;
    return 1;
}

int64_t ligi_session_judge(ligi_session *session, int64_t now_ns)
{
    int watching = session->watching, ping = watching && is_ping_due(session, now_ns);
    int64_t next_ns = watching ? now_ns + ligi_pause_beat_ns(session->liveness_ns) / 2 : INT64_MAX;
    for (ligi_session_peer *peer = session->peers, *next; peer != NULL; peer = next) {
        next = peer->next; /* it may be removed */
        if (watching && judge_silence(peer, now_ns, ping))
            continue;
        int64_t end = judge_doubt(peer, now_ns);
        next_ns = end < next_ns ? end : next_ns;
    }
    if (ligi_grace_is_over(session->doubt_ns, now_ns))
        ligi_session_end(session, LIG_E_PEER, session->doubt);
    return ligi_grace_next_ns(session->doubt_ns, next_ns);
}
