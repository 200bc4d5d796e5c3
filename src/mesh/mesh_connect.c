/* What the mesh adds to its session (group/session/session.h): handshakes, and the clocks of
 * peers. */
#include "mesh/mesh_connect.h"

#include "base/boot.h"
#include "group/group_info.h"
#include "group/session/session_peer.h"
#include "mesh/device/device_flags.h"
#include "mesh/mesh_respond.h"
#include "mesh/mesh_server.h"
#include "mesh/mesh_worker.h"
#include "net/link/link_send.h"

#include <string.h>
#include <sys/stat.h>

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

void ligi_mesh_clock_id(uint8_t id[16])
{
    struct stat space;
    if (!ligi_boot_id(id))
        return;
    uint64_t inode = stat("/proc/self/ns/time", &space) == 0 ? space.st_ino : 0;
    for (int i = 0; i < 8; i++)
        id[i] ^= (uint8_t)(inode >> 8 * i);
}

static void greet(void *context, ligi_reply *reply)
{
    const lig_mesh *mesh = context;
    greeting own = {.group_id = mesh->session.group_id,
                    .role = mesh->role,
                    .rank = mesh->rank,
                    .worker_count = mesh->worker_count,
                    .server_count = mesh->server_count,
                    .group_size = mesh->group_size};
    if (mesh->session.group != NULL) {
        own.rank = ligi_group_rank(mesh->session.group);
        own.incarnation = ligi_group_incarnation(mesh->session.group);
    }
    memcpy(own.magic, magic, sizeof magic);
    memcpy(own.boot_id, mesh->boot_id, sizeof own.boot_id);
    memcpy(reply->data, &own, sizeof own);
    reply->bytes = sizeof own;
}

static lig_status check(void *context, const ligi_hello *hello, ligi_session_claim *claim)
{
    const lig_mesh *mesh = context;
    uint32_t role = mesh->role == LIG_MESH_WORKER ? LIG_MESH_SERVER : LIG_MESH_WORKER;
    greeting other;
    if (hello->bytes != sizeof other || memcmp(hello->data, magic, sizeof magic) != 0)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the peer uses a different version of the mesh protocol");
    memcpy(&other, hello->data, sizeof other);
    if (other.role != role || other.worker_count != mesh->worker_count ||
        other.server_count != mesh->server_count || other.group_size != mesh->group_size)
        return lig_fail(
            LIG_E_MISMATCH,
            "the peer's mesh has %u workers, %u servers and groups of %u, this one %u, %u and %u",
            other.worker_count, other.server_count, other.group_size, mesh->worker_count,
            mesh->server_count, mesh->group_size);
    if (mesh->session.group_id && other.group_id && other.group_id != mesh->session.group_id)
        return lig_fail(LIG_E_DENIED, "the peer belongs to another group");
    *claim = (ligi_session_claim){.role = role == LIG_MESH_WORKER ? LIGI_WORKER : LIGI_SERVER,
                                  .rank = other.incarnation == 0 ? LIGI_RANK_ANY : other.rank,
                                  .incarnation = other.incarnation,
                                  .group_id = other.group_id};
    return LIG_OK;
}

static lig_status find(void *context, const ligi_session_claim *claim, ligi_session_peer **peer)
{
    lig_mesh *mesh = context;
    uint32_t index = claim->rank / mesh->group_size;
    if (claim->role != LIGI_WORKER || index >= mesh->party_count ||
        claim->rank % mesh->group_size != mesh->lane)
        return lig_fail(LIG_E_INVALID,
                        "unexpected connection from worker %u to server %u: they are in different "
                        "positions of their groups",
                        claim->rank, mesh->rank);
    *peer = &mesh->parties[index].peer;
    return LIG_OK;
}

/* Asks a peer for its clock; the answer also shows that it is alive. */
static void ping(ligi_session_peer *peer)
{
    uint8_t head[LIGI_MESSAGE_SMALL_BYTES];
    uint64_t stamps[LIGI_MESSAGE_STAMPS] = {lig_mesh_nanosecond()};
    size_t bytes = ligi_message_small(LIGI_MESSAGE_PING, 0, stamps, head);
    (void)ligi_net_send(peer->link, &(ligi_send){.head = head, .head_bytes = bytes}, NULL);
}

static void came(ligi_session_peer *peer, const ligi_hello *hello)
{
    static const uint8_t unknown[16];
    ligi_party *party = (ligi_party *)peer;
    lig_mesh *mesh = party->mesh;
    greeting other;
    memcpy(&other, hello->data, sizeof other);
    mesh->stats.peers_rejoined += peer->state == LIGI_LOST || peer->state == LIGI_LEFT;
    party->offset = (ligi_clock_offset){0};
    party->offset.exact = memcmp(other.boot_id, unknown, sizeof unknown) != 0 &&
                          memcmp(other.boot_id, mesh->boot_id, sizeof unknown) == 0;
    if (mesh->role == LIG_MESH_SERVER) {
        ligi_server_requests_join(&mesh->inbox, peer->index, other.incarnation);
    } else if (!party->offset.exact) {
        party->pings = PINGS;
        ping(peer);
    }
    ligi_flags_update(mesh, peer);
}

_Static_assert((int)LIGI_PRESENT == LIG_MESH_ALIVE && (int)LIGI_LOST == LIG_MESH_LOST &&
                   (int)LIGI_LEFT == LIG_MESH_STOPPED,
               "a peer's state is shown as it is");

static void gone(ligi_session_peer *peer, ligi_member_state before)
{
    ligi_party *party = (ligi_party *)peer;
    lig_mesh *mesh = party->mesh;
    mesh->stats.peers_lost += before == LIGI_PRESENT && peer->state == LIGI_LOST;
    party->pings = 0;
    mesh->news = mesh->role == LIG_MESH_SERVER; /* workers learn of it from their requests */
    if (mesh->role == LIG_MESH_SERVER)
        ligi_server_lost(party);
    else
        ligi_worker_lost(party);
    ligi_flags_update(mesh, NULL);
    ligi_mesh_ring(mesh);
}

/* This member was expelled: all peers are lost to it. */
static void ended(void *context)
{
    lig_mesh *mesh = context;
    for (uint32_t i = 0; i < mesh->party_count; i++)
        ligi_session_drop(&mesh->parties[i].peer, LIGI_LOST, mesh->session.ended.text);
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
        *status = pong(party->peer.link, &message, now);
    } else if (party->pings > 0) {
        uint64_t moments[4] = {message.stamps[0], message.stamps[1], message.stamps[1], now};
        ligi_clock_offset_feed(&party->offset, moments);
        if (--party->pings > 0)
            ping(&party->peer);
    }
    return 1;
}

static lig_status on_head(ligi_session_peer *peer, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_party *party = (ligi_party *)peer;
    lig_status status = LIG_OK;
    if (on_clock(party, arrival, &status))
        return status;
    if (arrival->head_bytes > 0 && *(const uint8_t *)arrival->head == LIGI_MESSAGE_OFFER &&
        arrival->payload_bytes == 0)
        return ligi_arena_on_offer(party, arrival->head, arrival->head_bytes);
    return party->mesh->role == LIG_MESH_SERVER ? ligi_server_head(party, arrival, landing)
                                                : ligi_worker_head(party, arrival, landing);
}

static void on_arrived(ligi_session_peer *peer, void *token)
{
    ligi_party *party = (ligi_party *)peer;
    if (party->mesh->role == LIG_MESH_SERVER)
        ligi_server_arrived(party, token);
    else
        ligi_worker_arrived(party, token);
}

static void on_sent(ligi_session_peer *peer, void *token, lig_status status)
{
    ligi_party *party = (ligi_party *)peer;
    if (party->mesh->role == LIG_MESH_SERVER)
        ligi_server_sent(party, token, status);
    else
        ligi_worker_sent(party, token);
}

const ligi_session_ops ligi_mesh_session = {
    .service = LIGI_SERVICE_MESH,
    .name = "mesh",
    .forked = "the mesh belongs to the parent process (forked)",
    .closed = "the mesh has been stopped",
    .greet = greet,
    .check = check,
    .find = find,
    .came = came,
    .gone = gone,
    .ended = ended,
    .ping = ping,
    .head = on_head,
    .arrived = on_arrived,
    .sent = on_sent,
};
