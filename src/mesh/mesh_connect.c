#include "mesh/mesh_connect.h"

#include "mesh/mesh.h"

#include "base/boot.h"
#include "base/clock.h"
#include "base/log.h"
#include "group/group_info.h"
#include "group/listen_addresses.h"
#include "group/peer_connect.h"
#include "mesh/mesh_loss.h"
#include "mesh/mesh_server.h"
#include "mesh/mesh_worker.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The hello of each end, in this order, as it is in memory. */
typedef struct greeting {
    char magic[8];
    uint64_t group_id; /* 0 from a server that the group has not released yet */
    uint8_t boot_id[16];
    uint32_t role, rank, incarnation;
    uint32_t worker_count, server_count, group_size;
} greeting;

_Static_assert(sizeof(greeting) == 56, "the hello is sent as it is");
static const char magic[8] = {'L', 'I', 'G', 'M', 'E', 'S', 'H', LIGI_MESSAGE_VERSION};

enum { PINGS = 16 };

static ligi_role group_role(uint32_t role)
{
    return role == LIG_MESH_WORKER ? LIGI_WORKER : LIGI_SERVER;
}

static uint32_t other_role(const lig_mesh *mesh)
{
    return mesh->role == LIG_MESH_WORKER ? LIG_MESH_SERVER : LIG_MESH_WORKER;
}

static ligi_party *party_of(lig_mesh *mesh, ligi_role role, uint32_t rank)
{
    if (mesh->party_count == 0 || role != group_role(other_role(mesh)) ||
        rank % mesh->group_size != mesh->lane || rank / mesh->group_size >= mesh->party_count)
        return NULL;
    return &mesh->parties[rank / mesh->group_size];
}

static greeting greet(const lig_mesh *mesh)
{
    greeting own = {.group_id = mesh->group_id,
                    .role = mesh->role,
                    .rank = mesh->rank,
                    .incarnation = mesh->group ? ligi_group_incarnation(mesh->group) : 0,
                    .worker_count = mesh->worker_count,
                    .server_count = mesh->server_count,
                    .group_size = mesh->group_size};
    memcpy(own.magic, magic, sizeof magic);
    memcpy(own.boot_id, mesh->boot_id, sizeof own.boot_id);
    return own;
}

static lig_status read_greeting(const lig_mesh *mesh, const ligi_hello *hello, greeting *other)
{
    if (hello->bytes != sizeof *other || memcmp(hello->data, magic, sizeof magic) != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "the peer speaks another version of the mesh protocol");
    memcpy(other, hello->data, sizeof *other);
    if (other->role != other_role(mesh) || other->worker_count != mesh->worker_count ||
        other->server_count != mesh->server_count || other->group_size != mesh->group_size)
        return lig_fail(
            LIG_E_MISMATCH,
            "the peer's mesh has %u workers, %u servers and groups of %u, this one %u, %u and %u",
            other->worker_count, other->server_count, other->group_size, mesh->worker_count,
            mesh->server_count, mesh->group_size);
    if (mesh->group_id && other->group_id && other->group_id != mesh->group_id)
        return lig_fail(LIG_E_DENIED, "the peer belongs to another group");
    return LIG_OK;
}

/* --- joining and leaving --- */

static void party_came(ligi_party *party, ligi_link *link, const greeting *other)
{
    lig_mesh *mesh = party->mesh;
    static const uint8_t unknown[16];
    char name[64];
    mesh->stats.peers_rejoined += party->state == LIG_MESH_LOST || party->state == LIG_MESH_STOPPED;
    party->link = link;
    party->group_id = other->group_id;
    if (other->incarnation != 0) /* a server may not know its rank yet; the group does */
        party->incarnation = other->incarnation;
    party->state = LIG_MESH_ALIVE;
    party->doubt_ns = 0;
    party->offset = (ligi_clock_offset){0};
    party->offset.exact = memcmp(other->boot_id, unknown, sizeof unknown) != 0 &&
                          memcmp(other->boot_id, mesh->boot_id, sizeof unknown) == 0;
    snprintf(name, sizeof name, "%s %u", ligi_party_role(party), party->index);
    ligi_link_set_owner(link, party);
    ligi_link_set_name(link, name);
    if (mesh->role == LIG_MESH_SERVER)
        ligi_server_requests_join(&mesh->inbox, party->index, other->incarnation);
}

void ligi_mesh_ping(ligi_party *party)
{
    uint8_t head[LIGI_MESSAGE_SMALL_BYTES];
    uint64_t stamps[LIGI_MESSAGE_STAMPS] = {lig_mesh_nanosecond()};
    size_t bytes = ligi_message_small(LIGI_MESSAGE_PING, 0, stamps, head);
    (void)ligi_net_send(party->link, &(ligi_send){.head = head, .head_bytes = bytes}, NULL);
}

static lig_status met_server(ligi_party *party, ligi_link *link, const greeting *other)
{
    if (other->rank != party->rank)
        return lig_fail(LIG_E_MISMATCH, "expected server %u, but server %u answered", party->rank,
                        other->rank);
    party_came(party, link, other);
    party->pings = party->offset.exact ? 0 : PINGS;
    if (party->pings)
        ligi_mesh_ping(party);
    return LIG_OK;
}

/* A worker may connect before the group has released this server: then it is checked later. */
static lig_status met_worker(lig_mesh *mesh, ligi_link *link, const greeting *other)
{
    ligi_party *party = party_of(mesh, LIGI_WORKER, other->rank);
    if (party == NULL)
        return lig_fail(LIG_E_INVALID,
                        "unexpected connection from worker %u to server %u: they are in different "
                        "positions of their groups",
                        other->rank, mesh->rank);
    if (mesh->group)
        LIG_TRY(ligi_group_check(mesh->group, LIGI_WORKER, other->rank, other->incarnation));
    if (party->link && party->incarnation == other->incarnation)
        return lig_fail(LIG_E_EXISTS, "worker %u is already connected", other->rank);
    if (party->link)
        ligi_mesh_peer_drop(party, LIG_MESH_LOST, "another process has taken its rank");
    party_came(party, link, other);
    return LIG_OK;
}

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    lig_mesh *mesh = context;
    greeting other, own = greet(mesh);
    LIG_TRY(ligi_mesh_check(mesh));
    LIG_TRY(read_greeting(mesh, hello, &other));
    ligi_party *party = ligi_link_owner(link);
    if (party)
        return met_server(party, link, &other);
    LIG_TRY(met_worker(mesh, link, &other));
    memcpy(reply->data, &own, sizeof own);
    reply->bytes = sizeof own;
    return LIG_OK;
}

/* --- messages --- */

static lig_status pong(ligi_link *link, const ligi_message *message, uint64_t now)
{
    uint8_t head[LIGI_MESSAGE_SMALL_BYTES];
    uint64_t stamps[LIGI_MESSAGE_STAMPS] = {message->stamps[0], now};
    size_t bytes = ligi_message_small(LIGI_MESSAGE_PONG, 0, stamps, head);
    return ligi_net_send(link, &(ligi_send){.head = head, .head_bytes = bytes}, NULL);
}

/* PING and PONG, of either role; 1 if it was one. */
static int on_clock(ligi_party *party, const ligi_arrival *arrival, lig_status *status)
{
    uint8_t kind = arrival->head_bytes > 0 ? *(const uint8_t *)arrival->head : 0;
    if (kind != LIGI_MESSAGE_PING && kind != LIGI_MESSAGE_PONG)
        return 0;
    ligi_message message;
    uint64_t now = lig_mesh_nanosecond();
    *status = ligi_message_decode(arrival->head, arrival->head_bytes, NULL, &message);
    if (*status != LIG_OK)
        return 1;
    if (arrival->payload_bytes != 0) {
        *status = lig_fail(LIG_E_CORRUPT, "ping with a payload");
    } else if (kind == LIGI_MESSAGE_PING) {
        *status = pong(party->link, &message, now);
    } else if (party->pings > 0) {
        uint64_t moments[4] = {message.stamps[0], message.stamps[1], message.stamps[1], now};
        ligi_clock_offset_feed(&party->offset, moments);
        if (--party->pings > 0)
            ligi_mesh_ping(party);
    }
    return 1;
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    lig_mesh *mesh = context;
    ligi_party *party = ligi_link_owner(link);
    lig_status status = LIG_OK;
    if (party == NULL || party->link != link || on_clock(party, arrival, &status))
        return status;
    return mesh->role == LIG_MESH_SERVER ? ligi_server_head(party, arrival, landing)
                                         : ligi_worker_head(party, arrival, landing);
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    lig_mesh *mesh = context;
    ligi_party *party = ligi_link_owner(link);
    if (token == NULL || party == NULL)
        return;
    if (mesh->role == LIG_MESH_SERVER)
        ligi_server_arrived(party, token);
    else
        ligi_worker_arrived(party, token);
}

static void on_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    lig_mesh *mesh = context;
    ligi_party *party = ligi_link_owner(link);
    if (token == NULL || party == NULL)
        return;
    if (mesh->role == LIG_MESH_SERVER)
        ligi_server_sent(party, token, status);
    else
        ligi_worker_sent(party, token);
}

/* --- changes in the group --- */

static lig_status connect_party(ligi_party *party, int64_t timeout_ns)
{
    lig_mesh *mesh = party->mesh;
    greeting own = greet(mesh);
    ligi_connect how = {.only = mesh->transport,
                        .service = LIGI_SERVICE_MESH,
                        .hello = &own,
                        .hello_bytes = sizeof own,
                        .timeout_ns = timeout_ns,
                        .owner = party};
    return ligi_group_connect(mesh->group, mesh->net, party->rank, &how, &party->incarnation,
                              &party->link);
}

static void joined(lig_mesh *mesh, ligi_party *party, const ligi_member *member)
{
    if (mesh->role != LIG_MESH_WORKER || party->incarnation == member->incarnation)
        return;
    if (party->link)
        ligi_mesh_peer_drop(party, LIG_MESH_LOST, "another process has taken its rank");
    if (connect_party(party, 0) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "server %u has rejoined, but: %s", party->index,
                 lig_error_text());
}

static void on_change(void *context, const ligi_group_event *event)
{
    lig_mesh *mesh = context;
    ligi_party *party = party_of(mesh, event->member.role, event->member.rank);
    if (mesh->stopped) /* and lingers for the others */
        return;
    if (event->change == LIGI_CHANGE_EXPELLED)
        ligi_mesh_expelled(mesh, event->sentence);
    else if (event->change == LIGI_CHANGE_ORPHANED)
        ligi_mesh_orphaned(mesh, event->sentence);
    else if (event->change == LIGI_CHANGE_JOINED && party)
        joined(mesh, party, &event->member);
    else if (event->change == LIGI_CHANGE_GONE && event->member.state == LIGI_LOST && party &&
             party->incarnation <= event->member.incarnation)
        ligi_mesh_peer_suspect(party, event->sentence);
}

const ligi_net_hooks ligi_mesh_hooks = {.met = on_met,
                                        .head = on_head,
                                        .arrived = on_arrived,
                                        .sent = on_sent,
                                        .lost = ligi_mesh_link_lost,
                                        .tick = ligi_mesh_loss_tick};

/* --- opening --- */

/* Identifies a clock: the boot of the machine, and the time namespace. */
static void set_clock_id(uint8_t id[16])
{
    struct stat space;
    if (!ligi_boot_id(id))
        return;
    uint64_t inode = stat("/proc/self/ns/time", &space) == 0 ? space.st_ino : 0;
    for (int i = 0; i < 8; i++)
        id[i] ^= (uint8_t)(inode >> 8 * i);
}

/* Workers connect. */
lig_status ligi_mesh_listen(lig_mesh *mesh, const lig_mesh_options *options)
{
    set_clock_id(mesh->boot_id);
    if (mesh->role != LIG_MESH_SERVER)
        return ligi_group_check_transport(mesh->transport);
    return ligi_group_listen(mesh->net, mesh->transport, options->address, options->secret != NULL);
}

/* Peers that are not in the group now are not waited for. */
static int all_met(void *context)
{
    lig_mesh *mesh = context;
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        const ligi_party *party = &mesh->parties[i];
        ligi_member member;
        if (party->state == LIG_MESH_ALIVE ||
            ligi_group_member(mesh->group, group_role(other_role(mesh)), party->rank, &member) !=
                LIG_OK ||
            member.state != LIGI_PRESENT)
            continue;
        if (mesh->role == LIG_MESH_WORKER && party->link == NULL)
            return 1; /* it was refused */
        return 0;
    }
    return 1;
}

static lig_status meet_party(ligi_party *party)
{
    lig_mesh *mesh = party->mesh;
    ligi_member member;
    ligi_role role = group_role(other_role(mesh));
    LIG_TRY(ligi_group_member(mesh->group, role, party->rank, &member));
    if (party->state == LIG_MESH_ALIVE &&
        (party->group_id != mesh->group_id ||
         ligi_group_check(mesh->group, role, party->rank, party->incarnation) != LIG_OK))
        ligi_mesh_peer_drop(party, LIG_MESH_LOST, "it is not a member of the group");
    if (party->state == LIG_MESH_ALIVE)
        return LIG_OK;
    if (member.state == LIGI_PRESENT)
        return mesh->role == LIG_MESH_WORKER ? connect_party(party, mesh->timeout_ns) : LIG_OK;
    ligi_mesh_peer_gone(party, member.state == LIGI_LEFT ? LIG_MESH_STOPPED : LIG_MESH_LOST,
                        "it is not present");
    return LIG_OK;
}

static lig_status missing(const lig_mesh *mesh, lig_status status)
{
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        const ligi_party *party = &mesh->parties[i];
        if (party->state == LIG_MESH_ALIVE)
            continue;
        if (status == LIG_E_TIMEOUT)
            return lig_fail(status, "%s %u is in the group but did not connect in time",
                            ligi_party_role(party), party->index);
        if (party->state == LIG_MESH_LOST && mesh->role == LIG_MESH_WORKER)
            return ligi_party_fail(party);
    }
    return status;
}

lig_status ligi_mesh_connect(lig_mesh *mesh, int64_t timeout_ns)
{
    lig_status status = LIG_OK;
    mesh->timeout_ns = timeout_ns;
    ligi_net_lock(mesh->net);
    mesh->group_id = ligi_group_id(mesh->group);
    ligi_group_watch(mesh->group, on_change, mesh);
    for (uint32_t i = 0; i < mesh->party_count && status == LIG_OK; i++)
        status = meet_party(&mesh->parties[i]);
    ligi_net_unlock(mesh->net);
    if (status != LIG_OK)
        return status;
    status = ligi_net_wait(mesh->net, all_met, mesh, timeout_ns);
    ligi_net_lock(mesh->net);
    status = missing(mesh, status);
    ligi_net_unlock(mesh->net);
    return status;
}

void ligi_mesh_disconnect(lig_mesh *mesh, const char *reason)
{
    for (uint32_t i = 0; i < mesh->party_count; i++) {
        ligi_party *party = &mesh->parties[i];
        if (party->link)
            ligi_mesh_peer_drop(party, LIG_MESH_STOPPED, reason);
    }
}
