#include "group/barrier_wait.h"

#include "group/group_state.h"
#include "group/member.h"
#include "net/progress.h"
#include "net/service.h"

#define LAST_WORD_NS INT64_C(2000000000) /* for the answer to a cancelled barrier */

static int is_settled(void *context)
{
    const ligi_barrier *barrier = context;
    return barrier->settled;
}

/* Within the process messages are delivered by the hooks, so the driving thread is woken. */
static void say(ligi_group *group, const ligi_group_message *message)
{
    ligi_net_lock(group->net);
    ligi_member_say(group, message, NULL);
    ligi_net_unlock(group->net);
    if (group->coordinator != NULL)
        ligi_net_hurry(group->net, LIGI_SERVICE_GROUP);
}

static lig_status enter(ligi_group *group, ligi_barrier *barrier)
{
    lig_status status = LIG_OK;
    ligi_net_lock(group->net);
    if (group->phase == LIGI_PHASE_ENDED) {
        status = ligi_failure_publish(&group->failure);
    } else if (group->parted.status != LIG_OK) {
        status = ligi_failure_publish(&group->parted);
    } else {
        barrier->number = ++group->barrier_number;
        barrier->next = group->barriers;
        group->barriers = barrier;
    }
    ligi_net_unlock(group->net);
    return status;
}

static void leave(ligi_group *group, ligi_barrier *barrier)
{
    ligi_net_lock(group->net);
    ligi_barrier **at = &group->barriers;
    while (*at != barrier)
        at = &(*at)->next;
    *at = barrier->next;
    ligi_net_unlock(group->net);
}

void ligi_group_part(ligi_group *group, const char *sentence)
{
    ligi_net_lock(group->net);
    ligi_failure_take(&group->parted, lig_fail(LIG_E_CLOSED, "%s", sentence));
    ligi_member_settle(group, &group->parted);
    ligi_net_unlock(group->net);
    ligi_net_wake(group->net);
}

lig_status ligi_group_barrier(ligi_group *group, uint32_t mask, uint32_t flags, int64_t timeout_ns)
{
    ligi_barrier barrier = {0};
    ligi_group_message message = {.kind = LIGI_GROUP_MESSAGE_ARRIVE, .mask = mask, .flags = flags};
    LIG_TRY(enter(group, &barrier));
    message.number = barrier.number;
    say(group, &message);
    lig_status status = ligi_group_wait(group, is_settled, &barrier, timeout_ns);
    if (status != LIG_OK)
        say(group,
            &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_CANCEL, .number = barrier.number});
    /* The coordinator knows who is missing, or has just completed the barrier. */
    if (status == LIG_E_TIMEOUT)
        status = ligi_group_wait(group, is_settled, &barrier, LAST_WORD_NS);
    leave(group, &barrier);
    if (barrier.settled)
        return ligi_failure_publish(&barrier.failure);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(
            LIG_E_TIMEOUT,
            "barrier timed out after %lld ms, and the coordinator at %s does not answer",
            (long long)(timeout_ns / 1000000), group->address);
    return status;
}
