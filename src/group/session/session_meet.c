#include "group/session/session_meet.h"

#include "base/clock.h"
#include "base/log.h"
#include "group/group_info.h"
#include "group/session/session_end.h"
#include "group/session/session_peer.h"
#include "net/link/link.h"
#include "net/progress.h"

/* --- hello --- */

static lig_status check_server(const ligi_session_peer *peer, const ligi_session_claim *claim)
{
    if (claim->rank == peer->rank || claim->rank == LIGI_RANK_ANY)
        return LIG_OK;
    return lig_fail(LIG_E_MISMATCH, "expected %s %u, but %s %u answered", peer->noun, peer->rank,
                    peer->noun, claim->rank);
}

/* It may connect before the group has released this process: then meet checks it. */
static lig_status check_client(ligi_session *session, ligi_session_peer *peer,
                               const ligi_session_claim *claim)
{
    LIG_TRY(ligi_session_usable(session));
    if (session->group != NULL)
        LIG_TRY(ligi_group_check(session->group, claim->role, claim->rank, claim->incarnation));
    int taken = session->ops->needs_all
                    ? peer->link != NULL || peer->state != LIGI_AWAITED
                    : peer->link != NULL && peer->incarnation == claim->incarnation;
    if (taken)
        return lig_fail(LIG_E_EXISTS, "%s %u is already connected, or was before", peer->noun,
                        peer->index);
    if (peer->link != NULL)
        ligi_session_drop(peer, LIGI_LOST, "another process has taken its rank");
    return LIG_OK;
}

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    ligi_session *session = context;
    ligi_session_claim claim = {0};
    ligi_session_peer *peer = ligi_link_owner(link);
    LIG_TRY(ligi_session_check(session));
    LIG_TRY(session->ops->check(session->context, hello, &claim));
    if (peer != NULL) {
        LIG_TRY(check_server(peer, &claim));
    } else {
        LIG_TRY(session->ops->find(session->context, &claim, &peer));
        LIG_TRY(check_client(session, peer, &claim));
        session->ops->greet(session->context, reply);
    }
    ligi_session_came(peer, link, &claim, hello);
    return LIG_OK;
}

/* --- messages --- */

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_session *session = context;
    ligi_session_peer *peer = ligi_link_owner(link);
    return peer != NULL && peer->link == link ? session->ops->head(peer, arrival, landing) : LIG_OK;
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    ligi_session *session = context;
    if (token != NULL && ligi_link_owner(link) != NULL)
        session->ops->arrived(ligi_link_owner(link), token);
}

static void on_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    ligi_session *session = context;
    if (token != NULL && ligi_link_owner(link) != NULL)
        session->ops->sent(ligi_link_owner(link), token, status);
}

static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    (void)context;
    ligi_session_link_lost(link, status, sentence);
}

static int64_t on_tick(void *context, int64_t now_ns)
{
    ligi_session *session = context;
    int64_t judged = ligi_session_judge(session, now_ns);
    int64_t next = session->ops->tick ? session->ops->tick(session->context, now_ns) : INT64_MAX;
    return judged < next ? judged : next;
}

const ligi_net_hooks ligi_session_hooks = {.met = on_met,
                                           .head = on_head,
                                           .arrived = on_arrived,
                                           .sent = on_sent,
                                           .lost = on_lost,
                                           .tick = on_tick};

/* --- members of the group --- */

static int connects_to(const ligi_session_peer *peer)
{
    const ligi_group *group = peer->session->group;
    ligi_role role = ligi_group_role(group);
    return role != peer->role ? role > peer->role : ligi_group_rank(group) > peer->rank;
}

static lig_status connect_member(ligi_session_peer *peer, uint32_t incarnation, int64_t timeout_ns)
{
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    ligi_connect to = {.card = card, .timeout_ns = timeout_ns};
    ligi_group *group = peer->session->group;
    LIG_TRY(ligi_group_blob(group, peer->role, peer->rank, card, &to.card_bytes));
    peer->incarnation = incarnation;
    return ligi_session_connect(peer, &to);
}

static void rejoined(ligi_session_peer *peer, uint32_t incarnation)
{
    if (peer->session->ops->needs_all || !connects_to(peer) || peer->incarnation == incarnation)
        return;
    if (peer->link != NULL)
        ligi_session_drop(peer, LIGI_LOST, "another process has taken its rank");
    if (connect_member(peer, incarnation, 0) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "%s %u has rejoined, but: %s", peer->noun, peer->index,
                 lig_error_text());
}

static void on_member(ligi_session *session, const ligi_group_event *event)
{
    const ligi_member *member = &event->member;
    const char *why = event->sentence ? event->sentence : "reported by the group";
    ligi_session_peer *peer = session->peers;
    while (peer != NULL && (peer->role != member->role || peer->rank != member->rank))
        peer = peer->next;
    if (peer == NULL)
        return;
    if (event->change == LIGI_CHANGE_JOINED)
        rejoined(peer, member->incarnation);
    else if (peer->incarnation <= member->incarnation)
        ligi_session_suspect(peer, member->state, why);
}

static void on_change(void *context, const ligi_group_event *event)
{
    ligi_session *session = context;
    if (atomic_load(&session->closed)) /* it waits for the others */
        return;
    if (event->change == LIGI_CHANGE_EXPELLED) {
        ligi_session_end(session, LIG_E_PEER, event->sentence);
    } else if (event->change != LIGI_CHANGE_ORPHANED) {
        on_member(session, event);
    } else if (session->ops->needs_all) { /* the link to its process usually reports why */
        ligi_session_doubt(session, event->sentence);
    } else {
        ligi_log(LIG_LOG_INFO, "the %s continues without its rendezvous: %s", session->ops->name,
                 event->sentence);
        ligi_session_watch(session);
    }
}

/* --- meeting --- */

static lig_status meet_peer(ligi_session_peer *peer)
{
    ligi_session *session = peer->session;
    ligi_member member;
    LIG_TRY(ligi_group_member(session->group, peer->role, peer->rank, &member));
    if (peer->state == LIGI_PRESENT &&
        (peer->group_id != session->group_id ||
         ligi_group_check(session->group, peer->role, peer->rank, peer->incarnation) != LIG_OK))
        ligi_session_drop(peer, LIGI_LOST, "it is not a member of the group");
    if (peer->state == LIGI_PRESENT)
        return LIG_OK;
    if (member.state != LIGI_PRESENT)
        ligi_session_drop(peer, member.state == LIGI_LEFT ? LIGI_LEFT : LIGI_LOST,
                          "it is not present");
    else if (connects_to(peer))
        return connect_member(peer, member.incarnation, ligi_time_left(session->deadline_ns));
    return LIG_OK;
}

/* Peers that are not in the group now are not waited for, unless the session ends with them. */
static int all_met(void *context)
{
    ligi_session *session = context;
    ligi_member member;
    if (atomic_load(&session->broken))
        return 1;
    for (ligi_session_peer *peer = session->peers; peer != NULL; peer = peer->next) {
        if (peer->state == LIGI_PRESENT)
            continue;
        if (session->ops->needs_all)
            return 0;
        if (ligi_group_member(session->group, peer->role, peer->rank, &member) == LIG_OK &&
            member.state == LIGI_PRESENT)
            return connects_to(peer) && peer->link == NULL; /* it refused */
    }
    return 1;
}

static lig_status first_missing(ligi_session *session, lig_status status)
{
    for (ligi_session_peer *peer = session->peers; peer != NULL; peer = peer->next) {
        if (peer->state != LIGI_PRESENT && status == LIG_E_TIMEOUT)
            return lig_fail(status, "%s %u is in the group but did not connect in time", peer->noun,
                            peer->index);
        if (peer->state == LIGI_LOST && connects_to(peer))
            return ligi_session_peer_fail(peer);
    }
    return status;
}

lig_status ligi_session_meet(ligi_session *session)
{
    lig_status status = LIG_OK;
    ligi_net_lock(session->net);
    ligi_group_watch(session->group, on_change, session);
    for (ligi_session_peer *peer = session->peers; peer && status == LIG_OK; peer = peer->next)
        status = meet_peer(peer);
    ligi_net_unlock(session->net);
    LIG_TRY(ligi_session_usable(session));
    LIG_TRY(status);
    status = ligi_net_wait(session->net, all_met, session, ligi_time_left(session->deadline_ns));
    LIG_TRY(ligi_session_usable(session));
    ligi_net_lock(session->net);
    status = first_missing(session, status);
    ligi_net_unlock(session->net);
    return status;
}
