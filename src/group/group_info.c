#include "group/group_info.h"

#include "base/clock.h"
#include "group/group.h"
#include "group/group_state.h"
#include "group/member.h"
#include "group/roster/local_pause.h"
#include "group/roster/member_names.h"
#include "net/progress.h"

#include <string.h>

void ligi_group_watch(ligi_group *group, ligi_group_hook hook, void *context)
{
    ligi_net_lock(group->net);
    group->hook = hook;
    group->hook_context = context;
    ligi_net_unlock(group->net);
}

int ligi_group_waking(ligi_group *group)
{
    int64_t now = ligi_now_ns();
    ligi_net_lock(group->net);
    int waking = group->coordinator == NULL && group->phase == LIGI_PHASE_RELEASED &&
                 ligi_pause_is_recent(group->tick_ns, group->awake_ns, now, group->liveness_ns);
    ligi_net_unlock(group->net);
    return waking;
}

ligi_role ligi_group_role(const ligi_group *group)
{
    return group->self.role;
}

uint32_t ligi_group_rank(const ligi_group *group)
{
    return group->self.rank;
}

uint32_t ligi_group_incarnation(const ligi_group *group)
{
    return group->self.incarnation;
}

uint64_t ligi_group_id(const ligi_group *group)
{
    return group->self.id;
}

int64_t ligi_group_liveness_ns(ligi_group *group)
{
    ligi_net_lock(group->net);
    int64_t liveness = group->liveness_ns;
    ligi_net_unlock(group->net);
    return liveness;
}

size_t ligi_group_members(ligi_group *group, ligi_member *members, size_t capacity)
{
    ligi_net_lock(group->net);
    /* A scheduler that never joined is not a member. */
    size_t count =
        group->seat_count - (group->seats[group->seat_count - 1].member.incarnation == 0);
    for (size_t i = 0; i < count && i < capacity; i++)
        members[i] = group->seats[i].member;
    ligi_net_unlock(group->net);
    return count;
}

static lig_status find(const ligi_group *group, ligi_role role, uint32_t rank, ligi_told **told)
{
    *told = ligi_member_seat(group, role, rank);
    if (*told == NULL)
        return lig_fail(LIG_E_NOTFOUND, "%s %u: the group has %u workers and %u servers",
                        ligi_role_name(role), rank, group->join.worker_count,
                        group->join.server_count);
    return LIG_OK;
}

lig_status ligi_group_member(ligi_group *group, ligi_role role, uint32_t rank, ligi_member *member)
{
    ligi_told *told;
    ligi_net_lock(group->net);
    lig_status status = find(group, role, rank, &told);
    if (status == LIG_OK)
        *member = told->member;
    ligi_net_unlock(group->net);
    return status;
}

lig_status ligi_group_blob(ligi_group *group, ligi_role role, uint32_t rank, void *blob,
                           size_t *bytes)
{
    ligi_told *told;
    ligi_net_lock(group->net);
    lig_status status = find(group, role, rank, &told);
    if (status == LIG_OK) {
        memcpy(blob, told->blob, told->blob_bytes);
        *bytes = told->blob_bytes;
    }
    ligi_net_unlock(group->net);
    return status;
}

static lig_status check(const ligi_told *told, uint32_t incarnation)
{
    char text[160];
    const ligi_member *member = &told->member;
    ligi_member_text(member, text, sizeof text);
    if (incarnation < member->incarnation)
        return lig_fail(LIG_E_PEER, "stale incarnation of %s: current is %u, not %u", text,
                        incarnation, member->incarnation);
    if (incarnation > member->incarnation)
        return lig_fail(LIG_E_PEER, "%s has no incarnation %u", text, incarnation);
    if (member->state != LIGI_PRESENT)
        return lig_fail(LIG_E_PEER, "%s %s: %s", text,
                        member->state == LIGI_LOST ? "is lost" : "is not a member",
                        told->why[0] != '\0' ? told->why : "it has not joined");
    return LIG_OK;
}

lig_status ligi_group_check(ligi_group *group, ligi_role role, uint32_t rank, uint32_t incarnation)
{
    ligi_told *told;
    ligi_net_lock(group->net);
    lig_status status = find(group, role, rank, &told);
    if (status == LIG_OK)
        status = check(told, incarnation);
    ligi_net_unlock(group->net);
    return status;
}
