#include "group/session/session_end.h"

#include "base/clock.h"
#include "group/barrier_wait.h"
#include "group/group_info.h"
#include "group/roster/loss_grace.h"
#include "net/progress.h"
#include "net/service.h"

#include <stdio.h>

void ligi_session_end(ligi_session *session, lig_status status, const char *sentence)
{
    if (atomic_load(&session->broken))
        return;
    lig_fail(status, "%s", sentence);
    ligi_failure_take(&session->ended, status);
    session->doubt_ns = 0;
    atomic_store_explicit(&session->broken, 1, memory_order_release);
    session->ops->ended(session->context);
    if (session->group != NULL)
        ligi_group_part(session->group, session->ended.text);
    ligi_net_wake(session->net);
}

void ligi_session_doubt(ligi_session *session, const char *sentence)
{
    if (session->leaving || session->doubt_ns != 0 || atomic_load(&session->broken))
        return;
    session->doubt_ns = ligi_grace_end_ns(ligi_now_ns());
    snprintf(session->doubt, sizeof session->doubt, "%s", sentence);
    ligi_net_hurry(session->net, session->ops->service);
}

void ligi_session_fail(ligi_session *session, lig_status status, const char *sentence)
{
    if (status == LIG_E_PEER && ligi_session_waking(session))
        ligi_session_doubt(session, sentence);
    else
        ligi_session_end(session, status, sentence);
}

int ligi_session_waking(ligi_session *session)
{
    return !session->leaving && session->group != NULL && ligi_group_waking(session->group);
}
