#include "group/session/session.h"

#include "base/boot.h"
#include "base/clock.h"
#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "group/listen_addresses.h"
#include "group/session/session_meet.h"
#include "group/session/session_peer.h"
#include "net/progress.h"
#include "net/service.h"

#include <stdio.h>
#include <string.h>

#define MINUTE_NS INT64_C(60000000000)
#define AGE_NS (INT64_MAX / 4)        /* a group rejects LIG_FOREVER */
#define REASON_NS INT64_C(1000000000) /* a lost link is explained within LIGI_LOSS_GRACE_NS */
#define MISMATCH_NS INT64_C(2000000000)

lig_status ligi_session_init(ligi_session *session, const ligi_session_ops *ops, void *context)
{
    session->ops = ops;
    session->context = context;
    pthread_rwlock_init(&session->group_lock, NULL);
    return ligi_fork_mark_create(&session->here);
}

int ligi_session_fini(ligi_session *session)
{
    int here = session->here == NULL || ligi_fork_mark_here(session->here);
    if (here && session->net != NULL) {
        ligi_session_disconnect(session, "it has stopped");
        /* If a coordinator left at once, the others would see its loss before the reason. */
        if (session->ended.status == LIG_E_MISMATCH)
            (void)ligi_session_linger(session, MISMATCH_NS);
        ligi_session_leave(session);
    }
    ligi_net_close(session->net);
    session->net = NULL;
    if (here)
        pthread_rwlock_destroy(&session->group_lock);
    ligi_fork_mark_destroy(session->here);
    return here;
}

/* --- joining --- */

static lig_status join_group(ligi_session *session, const ligi_session_options *options)
{
    char address[LIGI_GROUP_URI_BYTES];
    ligi_group_options group = options->group;
    ligi_group *opened;
    if (group.address != NULL) {
        LIG_TRY(ligi_group_uri(group.address, address));
        group.address = address;
    }
    group.timeout_ns = ligi_time_left(session->deadline_ns);
    group.liveness_ms = (uint32_t)(options->liveness_ns / 1000000);
    LIG_TRY(ligi_group_open(&opened, session->net, &group));
    ligi_net_lock(session->net); /* hooks read it */
    session->group = opened;
    session->group_id = ligi_group_id(opened);
    session->liveness_ns = ligi_group_liveness_ns(opened);
    ligi_net_unlock(session->net);
    return LIG_OK;
}

static lig_status serve_links(ligi_session *session, const ligi_session_options *options)
{
    if (options->group.role == LIGI_SCHEDULER)
        return ligi_group_check_transport(session->transport);
    LIG_TRY(ligi_net_serve(session->net, session->ops->service, &ligi_session_hooks, session));
    if (!options->listens)
        return ligi_group_check_transport(session->transport);
    return ligi_group_listen(session->net, session->transport, options->group.address,
                             options->net.secret != NULL);
}

lig_status ligi_session_open(ligi_session *session, const ligi_session_options *options)
{
    ligi_net_options net = options->net;
    int64_t most = options->timeout_ns == 0 ? MINUTE_NS : options->timeout_ns;
    if (options->liveness_ns < 0 || options->liveness_ns / 1000000 > UINT32_MAX)
        return lig_fail(LIG_E_INVALID, "liveness_ms must be between 1 ms and 49 days");
    if (options->transport && strlen(options->transport) >= sizeof session->transport)
        return lig_fail(LIG_E_INVALID, "unknown transport '%s'", options->transport);
    session->deadline_ns = ligi_time_until(most > 0 && most < AGE_NS ? most : AGE_NS);
    snprintf(session->transport, sizeof session->transport, "%s",
             options->transport ? options->transport : "auto");
    net.group = session->ops->name;
    net.background = 1;
    net.fabric =
        ligi_group_fabric(session->transport, options->trusted_fabric, options->any_device);
    LIG_TRY(ligi_net_open(&session->net, &net));
    LIG_TRY(serve_links(session, options));
    return join_group(session, options);
}

/* --- calls --- */

lig_status ligi_session_mine(const ligi_session *session)
{
    if (ligi_fork_mark_here(session->here))
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED, "%s", session->ops->forked);
}

lig_status ligi_session_check(const ligi_session *session)
{
    LIG_TRY(ligi_session_mine(session));
    if (atomic_load_explicit(&session->closed, memory_order_acquire))
        return lig_fail(LIG_E_CLOSED, "%s", session->ops->closed);
    return LIG_OK;
}

lig_status ligi_session_usable(const ligi_session *session)
{
    LIG_TRY(ligi_session_check(session));
    if (!atomic_load_explicit(&session->broken, memory_order_acquire))
        return LIG_OK;
    return ligi_failure_publish(&session->ended);
}

ligi_group *ligi_session_hold(ligi_session *session)
{
    if (ligi_session_check(session) != LIG_OK)
        return NULL;
    pthread_rwlock_rdlock(&session->group_lock);
    if (session->group != NULL)
        return session->group;
    pthread_rwlock_unlock(&session->group_lock);
    lig_fail(LIG_E_CLOSED, "%s", session->ops->closed);
    return NULL;
}

void ligi_session_release(ligi_session *session)
{
    pthread_rwlock_unlock(&session->group_lock);
}

static int is_broken(void *context)
{
    return atomic_load(&((ligi_session *)context)->broken);
}

lig_status ligi_session_barrier(ligi_session *session, uint32_t mask, uint32_t flags,
                                int64_t timeout_ns)
{
    LIG_TRY(ligi_session_usable(session));
    ligi_group *group = ligi_session_hold(session);
    if (group == NULL)
        return LIG_E_CLOSED;
    lig_status status = ligi_group_barrier(group, mask, flags, timeout_ns);
    ligi_session_release(session);
    /* The group may know who is missing before the link reports why. */
    if (status == LIG_E_PEER && session->ops->needs_all) {
        ligi_failure failure;
        ligi_failure_take(&failure, status);
        (void)ligi_net_wait(session->net, is_broken, session, REASON_NS);
        status = ligi_failure_publish(&failure);
    }
    if ((status == LIG_E_PEER || status == LIG_E_CLOSED) && is_broken(session))
        return ligi_failure_publish(&session->ended);
    return status;
}

/* --- leaving --- */

void ligi_session_disconnect(ligi_session *session, const char *reason)
{
    ligi_net_lock(session->net);
    session->leaving = 1;
    if (is_broken(session))
        reason = session->ended.text;
    for (ligi_session_peer *peer = session->peers, *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->link != NULL)
            ligi_session_drop(peer, LIGI_LEFT, reason);
    }
    if (session->group != NULL)
        ligi_group_part(session->group, session->ops->closed);
    ligi_net_unlock(session->net);
    ligi_net_wake(session->net);
}

lig_status ligi_session_linger(ligi_session *session, int64_t timeout_ns)
{
    pthread_rwlock_rdlock(&session->group_lock);
    lig_status status = session->group ? ligi_group_linger(session->group, timeout_ns) : LIG_OK;
    pthread_rwlock_unlock(&session->group_lock);
    return status;
}

void ligi_session_leave(ligi_session *session)
{
    pthread_rwlock_wrlock(&session->group_lock); /* barriers have ended with the links */
    ligi_group *group = session->group;
    if (group != NULL) {
        ligi_net_lock(session->net);
        ligi_group_watch(group, NULL, NULL);
        session->group = NULL;
        ligi_net_unlock(session->net);
        ligi_group_close(group, 0);
    }
    pthread_rwlock_unlock(&session->group_lock);
}
