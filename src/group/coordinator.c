#include "group/coordinator.h"
#include "group/roster/local_pause.h"
#include "group/roster/roster_liveness.h"

#include "base/clock.h"
#include "group/group.h"
#include "group/group_state.h"
#include "group/member.h"
#include "group/roster/member_names.h"
#include "net/link/link.h"
#include "net/link/link_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SLOT_BITS 16
#define REFUSED_NS (2 * INT64_C(1000000000)) /* time that a refused peer has to read the reason */
#define OUTCASTS_MAX 256

/* --- connections ----------------------------------------------------------------------------- */

static ligi_peer *find_peer(const ligi_coordinator *self, uint64_t who)
{
    size_t slot = who & ((1u << SLOT_BITS) - 1);
    if (who == LIGI_SELF || slot >= self->peer_count || self->peers[slot].who != who)
        return NULL;
    return self->peers[slot].link != NULL ? &self->peers[slot] : NULL;
}

static ligi_peer *peer_of(const ligi_coordinator *self, const ligi_link *link)
{
    return find_peer(self, (uint64_t)(uintptr_t)ligi_link_owner(link));
}

static void drop_peer(ligi_coordinator *self, ligi_peer *peer, const char *reason)
{
    ligi_link_close(peer->link, reason);
    self->outcast_count -= peer->outcast != 0;
    *peer = (ligi_peer){0};
}

static void cast_out(ligi_coordinator *self, ligi_peer *peer, int64_t until_ns)
{
    self->outcast_count += !peer->outcast;
    peer->outcast = 1;
    peer->until_ns = until_ns;
}

lig_status ligi_coordinator_met(ligi_group *group, ligi_link *link)
{
    ligi_coordinator *self = group->coordinator;
    size_t slot = 0;
    while (slot < self->peer_count && self->peers[slot].link != NULL)
        slot++;
    if (slot >= 1u << SLOT_BITS)
        return lig_fail(LIG_E_LIMIT, "connection limit of the coordinator reached: %zu", slot);
    if (slot == self->peer_count) {
        LIG_TRY(ligi_grow(&self->peers, &self->peer_capacity, slot + 1, sizeof *self->peers,
                          "the connections of a group"));
        self->peer_count++;
    }
    self->peers[slot] = (ligi_peer){
        .link = link,
        .who = ++self->generation << SLOT_BITS | slot,
        .until_ns = ligi_now_ns() + group->liveness_ns,
    };
    ligi_link_set_owner(link, (void *)(uintptr_t)self->peers[slot].who);
    return LIG_OK;
}

/* --- sending --------------------------------------------------------------------------------- */

/* The peer is looked up again: sending may have changed the table. */
static void post(ligi_group *group, uint64_t who, const ligi_writer *writer)
{
    if (who == LIGI_SELF) {
        ligi_group_inner(group, 0, writer);
        return;
    }
    ligi_peer *peer = find_peer(group->coordinator, who);
    if (peer == NULL || peer->broken)
        return;
    ligi_send send = {.head = writer->data, .head_bytes = writer->bytes};
    lig_status status = writer->status;
    if (status == LIG_OK)
        status = ligi_net_send(peer->link, &send, NULL);
    /* A link that has ended reports this shortly, with the reason. */
    peer->broken = status == LIG_E_BUSY || status == LIG_E_NOMEM;
}

static void say(ligi_group *group, uint64_t who, const ligi_group_message *message)
{
    ligi_writer writer = {0};
    ligi_group_message_put(&writer, message);
    post(group, who, &writer);
    ligi_writer_fini(&writer);
}

/* The missing members, and the last refused peer: a refusal is often the reason for a missing
 * member. */
static void describe_waiting(const ligi_coordinator *self, char text[LIGI_GROUP_MESSAGE_TEXT_BYTES])
{
    ligi_roster_awaited(&self->roster, text, LIGI_GROUP_MESSAGE_TEXT_BYTES);
    size_t used = strlen(text);
    if (used > 0 && self->refused[0] != '\0')
        snprintf(text + used, LIGI_GROUP_MESSAGE_TEXT_BYTES - used, "; refused: %s", self->refused);
}

static void say_wait(ligi_group *group, uint64_t who)
{
    const ligi_coordinator *self = group->coordinator;
    ligi_group_message message = {.kind = LIGI_GROUP_MESSAGE_WAIT,
                                  .number = (uint64_t)(self->roster.liveness_ns / 1000000)};
    describe_waiting(self, message.text);
    say(group, who, &message);
}

static void put_seat(ligi_writer *writer, const ligi_seat *seat)
{
    ligi_group_message_put_entry(writer, &(ligi_group_entry){.member = seat->member,
                                                             .why = seat->why,
                                                             .blob = seat->blob,
                                                             .blob_bytes = seat->blob_bytes});
}

/* Sends seats [from, to) as one portion. */
static void say_portion(ligi_group *group, const ligi_seat *to_whom, size_t from, size_t to)
{
    const ligi_roster *roster = &group->coordinator->roster;
    ligi_group_message message = {
        .kind = LIGI_GROUP_MESSAGE_ROSTER,
        .number = to_whom->told_epoch,
        .entry_count = to - from,
        .welcome = {.id = group->coordinator->id,
                    .role = to_whom->member.role,
                    .rank = to_whom->member.rank,
                    .incarnation = to_whom->member.incarnation,
                    .last = to == roster->seat_count},
    };
    ligi_writer writer = {0};
    ligi_group_message_put(&writer, &message);
    for (size_t i = from; i < to; i++)
        put_seat(&writer, &roster->seats[i]);
    post(group, to_whom->who, &writer);
    ligi_writer_fini(&writer);
}

static void say_roster(ligi_group *group, uint64_t who)
{
    const ligi_roster *roster = &group->coordinator->roster;
    const ligi_seat *to_whom = ligi_roster_find(roster, who);
    size_t from = 0, bytes = 0;
    if (to_whom == NULL)
        return;
    for (size_t i = 0; i < roster->seat_count; i++) {
        bytes += roster->seats[i].blob_bytes + sizeof(ligi_member) + sizeof roster->seats[i].why;
        if (bytes < LIGI_GROUP_MESSAGE_PORTION_BYTES && i + 1 < roster->seat_count)
            continue;
        say_portion(group, to_whom, from, i + 1);
        from = i + 1;
        bytes = 0;
    }
}

/* The entry is that of the act: the seat may have changed since. The blob of a present member is
 * the seat's. */
static void say_change(ligi_group *group, const ligi_act *act)
{
    const ligi_roster *roster = &group->coordinator->roster;
    const ligi_seat *seat = &roster->seats[act->seat];
    ligi_writer writer = {0};
    ligi_group_message_put(
        &writer, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_CHANGE, .number = act->epoch});
    ligi_group_message_put_entry(&writer, &(ligi_group_entry){.member = act->member,
                                                              .why = act->text,
                                                              .blob = seat->blob,
                                                              .blob_bytes = seat->blob_bytes});
    for (size_t i = 0; i < roster->seat_count; i++) {
        const ligi_seat *other = &roster->seats[i];
        if (other->who != 0 && other->told_epoch != 0 && other->told_epoch < act->epoch)
            post(group, other->who, &writer);
    }
    ligi_writer_fini(&writer);
}

/* --- acting ---------------------------------------------------------------------------------- */

/* A member that cannot be notified would stay in an old epoch, so it is expelled. */
static int end_broken(ligi_group *group)
{
    ligi_coordinator *self = group->coordinator;
    for (size_t i = 0; i < self->peer_count; i++) {
        ligi_peer *peer = &self->peers[i];
        if (peer->link == NULL || !peer->broken)
            continue;
        uint64_t who = peer->who;
        drop_peer(self, peer, "it does not read its messages");
        lig_status status = ligi_roster_end(&self->roster, who, "it does not read its messages");
        if (status == LIG_OK)
            status = ligi_barriers_review(&self->barriers, &self->roster);
        if (status != LIG_OK)
            ligi_member_end(group, LIGI_CHANGE_ORPHANED, status);
        return 1;
    }
    return 0;
}

static void refuse(ligi_group *group, const ligi_act *act)
{
    ligi_group_message message = {.kind = LIGI_GROUP_MESSAGE_REFUSE, .status = act->status};
    memcpy(message.text, act->text, sizeof message.text);
    memcpy(group->coordinator->refused, act->text, sizeof message.text);
    say(group, act->who, &message);
    ligi_peer *peer = find_peer(group->coordinator, act->who);
    if (peer != NULL)
        cast_out(group->coordinator, peer, ligi_now_ns() + REFUSED_NS);
}

static void expel(ligi_group *group, const ligi_act *act)
{
    ligi_group_message message = {.kind = LIGI_GROUP_MESSAGE_EXPEL, .number = act->epoch + 1};
    memcpy(message.text, act->text, sizeof message.text);
    say(group, act->who, &message);
    ligi_peer *peer = find_peer(group->coordinator, act->who);
    if (peer == NULL)
        return;
    if (group->coordinator->outcast_count >= OUTCASTS_MAX)
        drop_peer(group->coordinator, peer, act->text);
    else
        cast_out(group->coordinator, peer, INT64_MAX);
}

int ligi_coordinator_work(ligi_group *group)
{
    ligi_act act;
    ligi_group_message message = {0};
    if (!ligi_roster_next(&group->coordinator->roster, &act))
        return end_broken(group);
    message.number = act.number;
    message.status = act.status;
    switch (act.kind) {
    case LIGI_ACT_REFUSE: refuse(group, &act); break;
    case LIGI_ACT_PROBE:
        message.kind = LIGI_GROUP_MESSAGE_PROBE;
        say(group, act.who, &message);
        break;
    case LIGI_ACT_ROSTER: say_roster(group, act.who); break;
    case LIGI_ACT_CHANGE: say_change(group, &act); break;
    case LIGI_ACT_RELEASE:
        message.kind = LIGI_GROUP_MESSAGE_RELEASE;
        say(group, act.who, &message);
        break;
    case LIGI_ACT_EXPEL: expel(group, &act); break;
    case LIGI_ACT_PASS:
    case LIGI_ACT_FAIL:
        message.kind =
            act.kind == LIGI_ACT_PASS ? LIGI_GROUP_MESSAGE_PASS : LIGI_GROUP_MESSAGE_FAIL;
        memcpy(message.text, act.text, sizeof message.text);
        say(group, act.who, &message);
        break;
    }
    return 1;
}

/* --- receiving ------------------------------------------------------------------------------- */

static lig_status take_join(ligi_group *group, uint64_t who, const ligi_join *join)
{
    ligi_coordinator *self = group->coordinator;
    LIG_TRY(ligi_roster_join(&self->roster, who, join, ligi_now_ns()));
    say_wait(group, who);
    return LIG_OK;
}

static lig_status take_message(ligi_group *group, uint64_t who, const ligi_group_message *message)
{
    ligi_coordinator *self = group->coordinator;
    switch (message->kind) {
    case LIGI_GROUP_MESSAGE_CONFIRM:
        return ligi_roster_confirm(&self->roster, who, message->number);
    case LIGI_GROUP_MESSAGE_ANSWER: return ligi_roster_answer(&self->roster, who, message->number);
    case LIGI_GROUP_MESSAGE_ARRIVE:
        return ligi_barriers_arrive(&self->barriers, &self->roster,
                                    &(ligi_waiter){.who = who,
                                                   .number = message->number,
                                                   .mask = message->mask,
                                                   .flags = message->flags});
    case LIGI_GROUP_MESSAGE_CANCEL:
        return ligi_barriers_cancel(&self->barriers, &self->roster, who, message->number);
    case LIGI_GROUP_MESSAGE_BEAT: return LIG_OK;
    default:
        return lig_fail(LIG_E_CORRUPT, "unexpected message of kind %d from a member",
                        message->kind);
    }
}

lig_status ligi_coordinator_take_own(ligi_group *group, const void *data, size_t bytes)
{
    ligi_group_message message;
    ligi_join join;
    LIG_TRY(ligi_group_message_decode(data, bytes, &message, &join));
    if (message.kind == LIGI_GROUP_MESSAGE_JOIN)
        LIG_TRY(take_join(group, LIGI_SELF, &join));
    else
        LIG_TRY(take_message(group, LIGI_SELF, &message));
    return ligi_barriers_review(&group->coordinator->barriers, &group->coordinator->roster);
}

static void name_peer(ligi_peer *peer, const ligi_join *join)
{
    char text[64];
    if (join->rank == LIGI_RANK_ANY)
        snprintf(text, sizeof text, "a %s on %.40s", ligi_role_name(join->role), join->host);
    else
        snprintf(text, sizeof text, "%s %u on %.40s", ligi_role_name(join->role), join->rank,
                 join->host);
    ligi_link_set_name(peer->link, text);
}

lig_status ligi_coordinator_take(ligi_group *group, ligi_link *link, const void *data, size_t bytes)
{
    ligi_coordinator *self = group->coordinator;
    ligi_peer *peer = peer_of(self, link);
    ligi_group_message message;
    ligi_join join;
    if (peer == NULL || peer->outcast)
        return LIG_OK;
    LIG_TRY(ligi_group_message_decode(data, bytes, &message, &join));
    if (peer->asked != (message.kind != LIGI_GROUP_MESSAGE_JOIN))
        return lig_fail(LIG_E_CORRUPT, "a member joins %s", peer->asked ? "twice" : "too late");
    if (message.kind == LIGI_GROUP_MESSAGE_JOIN) {
        peer->asked = 1;
        name_peer(peer, &join);
        LIG_TRY(take_join(group, peer->who, &join));
    } else {
        LIG_TRY(take_message(group, peer->who, &message));
    }
    return ligi_barriers_review(&self->barriers, &self->roster);
}

void ligi_coordinator_lost(ligi_group *group, ligi_link *link, lig_status status,
                           const char *sentence)
{
    ligi_coordinator *self = group->coordinator;
    ligi_peer *peer = peer_of(self, link);
    if (peer == NULL) {
        ligi_link_close(link, NULL);
        return;
    }
    uint64_t who = peer->who;
    int outcast = peer->outcast;
    drop_peer(self, peer, NULL);
    if (outcast)
        return;
    char why[128];
    snprintf(why, sizeof why, "%s", sentence);
    lig_status ended = status == LIG_E_CLOSED && ligi_roster_find(&self->roster, who) != NULL
                           ? ligi_roster_leave(&self->roster, who)
                           : ligi_roster_end(&self->roster, who, why);
    if (ended == LIG_OK)
        ended = ligi_barriers_review(&self->barriers, &self->roster);
    if (ended != LIG_OK)
        ligi_member_end(group, LIGI_CHANGE_ORPHANED, ended);
}

/* --- time ------------------------------------------------------------------------------------ */

static void tend_peer(ligi_group *group, ligi_peer *peer, int64_t now_ns, int beat)
{
    ligi_coordinator *self = group->coordinator;
    int waits = peer->outcast || !peer->asked;
    if (waits && now_ns >= peer->until_ns) {
        drop_peer(self, peer, peer->outcast ? "refused" : "it has not asked to join");
        return;
    }
    if (waits)
        return;
    ligi_roster_hear(&self->roster, peer->who, ligi_link_heard_ns(peer->link));
    if (beat && ligi_link_queued(peer->link) < 16)
        say(group, peer->who, &(ligi_group_message){.kind = LIGI_GROUP_MESSAGE_BEAT});
}

/* While the group forms, all members are notified of who is missing. */
static void tell_waiting(ligi_group *group)
{
    ligi_coordinator *self = group->coordinator;
    char text[sizeof self->waiting];
    describe_waiting(self, text);
    if (strcmp(text, self->waiting) == 0)
        return;
    memcpy(self->waiting, text, sizeof text);
    for (size_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].link != NULL && self->peers[i].asked && !self->peers[i].outcast)
            say_wait(group, self->peers[i].who);
    say_wait(group, LIGI_SELF);
}

lig_status ligi_coordinator_tick(ligi_group *group, int64_t now_ns)
{
    ligi_coordinator *self = group->coordinator;
    int beat = now_ns >= group->beat_ns;
    if (beat)
        group->beat_ns = now_ns + ligi_pause_beat_ns(group->liveness_ns);
    ligi_roster_hear(&self->roster, LIGI_SELF, now_ns);
    for (size_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].link != NULL)
            tend_peer(group, &self->peers[i], now_ns, beat);
    LIG_TRY(ligi_roster_tick(&self->roster, now_ns));
    tell_waiting(group);
    return ligi_barriers_review(&self->barriers, &self->roster);
}

/* --- start and stop -------------------------------------------------------------------------- */

lig_status ligi_coordinator_create(ligi_group *group, const ligi_group_options *options)
{
    ligi_coordinator *self;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a group's coordinator"));
    lig_status status = ligi_roster_init(&self->roster, options);
    if (status != LIG_OK) {
        free(self);
        return status;
    }
    self->roster.liveness_ns = group->liveness_ns;
    if (getrandom(&self->id, sizeof self->id, 0) != (ssize_t)sizeof self->id)
        self->id = (uint64_t)ligi_date_ns();
    group->coordinator = self;
    return LIG_OK;
}

void ligi_coordinator_destroy(ligi_coordinator *coordinator)
{
    if (coordinator == NULL)
        return;
    ligi_roster_fini(&coordinator->roster);
    ligi_barriers_fini(&coordinator->barriers);
    free(coordinator->peers);
    free(coordinator);
}

void ligi_coordinator_close(ligi_group *group, const char *reason)
{
    ligi_coordinator *self = group->coordinator;
    for (size_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].link != NULL)
            drop_peer(self, &self->peers[i], reason);
}
