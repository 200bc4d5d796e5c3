#include "group/member.h"

#include "base/clock.h"
#include "base/log.h"
#include "group/group.h"
#include "group/group_state.h"
#include "group/roster/local_pause.h"
#include "group/roster/member_names.h"
#include "net/link/key_binding.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/service.h"

#include <stdio.h>
#include <string.h>

#define FIRST_WORD_NS (5 * INT64_C(1000000000))

/* --- sending --------------------------------------------------------------------------------- */

void ligi_member_say(ligi_group *group, const ligi_group_message *message, const ligi_join *join)
{
    ligi_writer writer = {0};
    ligi_group_message_put(&writer, message);
    if (join != NULL)
        ligi_group_message_put_join(&writer, join);
    lig_status status = writer.status;
    if (status == LIG_OK && group->coordinator != NULL)
        ligi_group_inner(group, 1, &writer);
    else if (status == LIG_OK && group->link != NULL)
        status = ligi_net_send(group->link,
                               &(ligi_send){.head = writer.data, .head_bytes = writer.bytes}, NULL);
    ligi_writer_fini(&writer);
    /* If the coordinator does not read, its silence is detected later. */
    if (status == LIG_OK || status == LIG_E_BUSY)
        return;
    char said[512];
    snprintf(said, sizeof said, "%s", lig_error_text());
    status = lig_fail(status == LIG_E_NOMEM ? status : LIG_E_PEER, "lost the coordinator at %s: %s",
                      group->address, said);
    ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
}

static void say_number(ligi_group *group, ligi_group_message_kind kind, uint64_t number)
{
    ligi_member_say(group, &(ligi_group_message){.kind = kind, .number = number}, NULL);
}

lig_status ligi_member_ask(ligi_group *group)
{
    char host[LIGI_ADDRESS_BYTES_MAX];
    memcpy(host, group->card_host, sizeof host);
    if (host[0] == '\0' && group->link != NULL)
        LIG_TRY(ligi_link_local_host(group->link, host));
    group->join.blob_bytes = sizeof group->join.blob;
    LIG_TRY(ligi_net_card(group->net, host[0] != '\0' ? host : NULL, group->join.blob,
                          &group->join.blob_bytes));
    group->phase = LIGI_PHASE_ASKED;
    group->awake_ns = ligi_now_ns();
    ligi_member_say(group, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_JOIN}, &group->join);
    return LIG_OK;
}

/* --- ending ---------------------------------------------------------------------------------- */

static void tell(ligi_group *group, ligi_group_change change, const ligi_told *told,
                 const char *sentence)
{
    ligi_group_event event = {.change = change, .sentence = sentence};
    if (told != NULL)
        event.member = told->member;
    if (group->hook != NULL && group->phase >= LIGI_PHASE_RELEASED)
        group->hook(group->hook_context, &event);
}

void ligi_member_settle(ligi_group *group, const ligi_failure *failure)
{
    for (ligi_barrier *one = group->barriers; one != NULL; one = one->next)
        if (!one->settled) {
            one->failure = *failure;
            one->settled = 1;
        }
}

void ligi_member_end(ligi_group *group, ligi_group_change change, lig_status status)
{
    if (group->phase == LIGI_PHASE_ENDED)
        return;
    int released = group->phase == LIGI_PHASE_RELEASED;
    ligi_failure_take(&group->failure, status);
    group->phase = LIGI_PHASE_ENDED;
    ligi_member_settle(group, &group->failure);
    if (released)
        tell(group, change, NULL, group->failure.text);
}

static void take_expel(ligi_group *group, const ligi_group_message *message)
{
    ligi_told *self = ligi_member_seat(group, group->self.role, group->self.rank);
    char text[160];
    snprintf(text, sizeof text, "a %s", ligi_role_name(group->join.role));
    if (self != NULL && group->phase >= LIGI_PHASE_TOLD) /* before that it has no rank */
        ligi_member_text(&self->member, text, sizeof text);
    lig_status status = lig_fail(
        LIG_E_PEER, "this process, %s, was expelled from the group in epoch %llu: %s; join again",
        text, (unsigned long long)message->number, message->text);
    ligi_member_end(group, LIGI_CHANGE_EXPELLED, status);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* The next heartbeat was scheduled with the member's own value, which is too late for a shorter
 * one. */
static void take_liveness(ligi_group *group, int64_t liveness_ns)
{
    if (group->liveness_ns == liveness_ns)
        return;
    group->liveness_ns = liveness_ns;
    group->beat_ns = 0;
    ligi_net_hurry(group->net, LIGI_SERVICE_GROUP);
}

ligi_told *ligi_member_seat(const ligi_group *group, ligi_role role, uint32_t rank)
{
    size_t index =
        ligi_roster_index(group->join.server_count, group->join.worker_count, role, rank);
    return index == SIZE_MAX ? NULL : &group->seats[index];
}

static lig_status take_entry(ligi_group *group, const ligi_group_entry *entry, ligi_told **told)
{
    ligi_told *seat = ligi_member_seat(group, entry->member.role, entry->member.rank);
    if (seat == NULL)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: the coordinator refers to %s %u, which does not exist",
                        ligi_role_name(entry->member.role), entry->member.rank);
    seat->member = entry->member;
    snprintf(seat->why, sizeof seat->why, "%s", entry->why);
    if (entry->blob_bytes > 0)
        memcpy(seat->blob, entry->blob, entry->blob_bytes);
    seat->blob_bytes = entry->blob_bytes;
    *told = seat;
    return LIG_OK;
}

/* Before the roster is confirmed: no peer connects to this member earlier. */
static lig_status bind_members(ligi_group *group, uint64_t id)
{
    char context[32];
    snprintf(context, sizeof context, "member %016llx", (unsigned long long)id);
    return ligi_net_bind(group->net, LIGI_KEY_MEMBER, context);
}

static lig_status take_roster(ligi_group *group, ligi_group_message *message)
{
    ligi_group_entry entry;
    ligi_told *told;
    if (group->phase != LIGI_PHASE_ASKED ||
        ligi_member_seat(group, message->welcome.role, message->welcome.rank) == NULL)
        return lig_fail(LIG_E_CORRUPT, "protocol error: unexpected roster from the coordinator");
    while (ligi_group_message_entry(message, &entry))
        LIG_TRY(take_entry(group, &entry, &told));
    if (!message->welcome.last)
        return LIG_OK;
    LIG_TRY(bind_members(group, message->welcome.id));
    group->self = message->welcome;
    group->epoch = message->number;
    group->phase = LIGI_PHASE_TOLD;
    say_number(group, LIGI_GROUP_MESSAGE_CONFIRM, message->number);
    return LIG_OK;
}

static lig_status take_change(ligi_group *group, ligi_group_message *message)
{
    ligi_group_entry entry;
    ligi_told *told;
    if (group->phase < LIGI_PHASE_TOLD || message->number <= group->epoch)
        return lig_fail(LIG_E_CORRUPT, "protocol error: the coordinator sent epoch %llu after %llu",
                        (unsigned long long)message->number, (unsigned long long)group->epoch);
    ligi_group_message_entry(message, &entry);
    LIG_TRY(take_entry(group, &entry, &told));
    group->epoch = message->number;
    tell(group, told->member.state == LIGI_PRESENT ? LIGI_CHANGE_JOINED : LIGI_CHANGE_GONE, told,
         told->why);
    say_number(group, LIGI_GROUP_MESSAGE_CONFIRM, message->number);
    return LIG_OK;
}

static void take_barrier(ligi_group *group, const ligi_group_message *message)
{
    for (ligi_barrier *one = group->barriers; one != NULL; one = one->next) {
        if (one->number != message->number || one->settled)
            continue;
        one->settled = 1;
        lig_status status = LIG_OK;
        if (message->kind == LIGI_GROUP_MESSAGE_FAIL)
            status = lig_fail(message->status, "%s", message->text);
        ligi_failure_take(&one->failure, status);
    }
}

static lig_status take_message(ligi_group *group, ligi_group_message *message)
{
    switch (message->kind) {
    case LIGI_GROUP_MESSAGE_WAIT:
        memcpy(group->waiting, message->text, sizeof group->waiting);
        if (message->number > 0 && message->number <= UINT32_MAX)
            take_liveness(group, (int64_t)message->number * 1000000);
        return LIG_OK;
    case LIGI_GROUP_MESSAGE_REFUSE:
        ligi_member_end(group, LIGI_CHANGE_ORPHANED,
                        lig_fail(message->status, "%s", message->text));
        return LIG_OK;
    case LIGI_GROUP_MESSAGE_PROBE:
        say_number(group, LIGI_GROUP_MESSAGE_ANSWER, message->number);
        return LIG_OK;
    case LIGI_GROUP_MESSAGE_ROSTER: return take_roster(group, message);
    case LIGI_GROUP_MESSAGE_CHANGE: return take_change(group, message);
    case LIGI_GROUP_MESSAGE_RELEASE:
        if (group->phase == LIGI_PHASE_TOLD)
            group->phase = LIGI_PHASE_RELEASED;
        return LIG_OK;
    case LIGI_GROUP_MESSAGE_EXPEL: take_expel(group, message); return LIG_OK;
    case LIGI_GROUP_MESSAGE_PASS:
    case LIGI_GROUP_MESSAGE_FAIL: take_barrier(group, message); return LIG_OK;
    case LIGI_GROUP_MESSAGE_BEAT: return LIG_OK;
    default:
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: unexpected message of kind %d from the coordinator",
                        message->kind);
    }
}

lig_status ligi_member_take(ligi_group *group, const void *data, size_t bytes)
{
    ligi_group_message message;
    ligi_join join;
    LIG_TRY(ligi_group_message_decode(data, bytes, &message, &join));
    return group->phase == LIGI_PHASE_ENDED ? LIG_OK : take_message(group, &message);
}

/* --- time ------------------------------------------------------------------------------------ */

/* A process that was stopped first reads what has arrived meanwhile. */
static void judge_coordinator(ligi_group *group, int64_t now_ns)
{
    if (ligi_pause_detect(group->tick_ns, now_ns, group->liveness_ns))
        group->awake_ns = now_ns;
    int64_t silent =
        ligi_pause_silence_ns(ligi_link_heard_ns(group->link), group->awake_ns, now_ns);
    if (silent <= group->liveness_ns)
        return;
    lig_status status = lig_fail(
        LIG_E_PEER,
        "the coordinator at %s has been silent for %lld ms (liveness_ms=%lld): this "
        "process is disconnected from its group; join again",
        group->address, (long long)(silent / 1000000), (long long)(group->liveness_ns / 1000000));
    ligi_member_end(group, LIGI_CHANGE_EXPELLED, status);
}

/* The coordinator logs this for all; a member does so only if it cannot reach the coordinator. */
static void say_waiting(ligi_group *group, int64_t now_ns)
{
    if (group->phase >= LIGI_PHASE_RELEASED || now_ns < group->word_ns)
        return;
    group->word_ns = now_ns + group->word_wait_ns;
    group->word_wait_ns *= 2;
    if (now_ns - group->begun_ns < FIRST_WORD_NS / 2)
        return;
    if (group->phase == LIGI_PHASE_CONNECTING)
        ligi_log(LIG_LOG_WARNING, "%s: no answer at %s yet", ligi_role_name(group->join.role),
                 group->address);
    else if (group->waiting[0] != '\0')
        ligi_log(group->coordinator != NULL ? LIG_LOG_WARNING : LIG_LOG_INFO,
                 "the group at %s is still waiting for %s", group->address, group->waiting);
}

void ligi_member_tick(ligi_group *group, int64_t now_ns)
{
    if (group->word_wait_ns == 0) {
        group->word_wait_ns = FIRST_WORD_NS;
        group->word_ns = group->begun_ns + FIRST_WORD_NS;
    }
    say_waiting(group, now_ns);
    if (group->link != NULL && group->phase >= LIGI_PHASE_ASKED &&
        group->phase < LIGI_PHASE_ENDED) {
        judge_coordinator(group, now_ns);
        if (group->phase != LIGI_PHASE_ENDED && now_ns >= group->beat_ns &&
            ligi_link_queued(group->link) < 16) {
            group->beat_ns = now_ns + ligi_pause_beat_ns(group->liveness_ns);
            ligi_member_say(group, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_BEAT}, NULL);
        }
    }
    group->tick_ns = now_ns;
}
