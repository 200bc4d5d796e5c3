/* Every two nodes have one link; the one with the higher rank connects. */
#include "params/node/node_connect.h"

#include "base/log.h"
#include "group/group_info.h"
#include "group/listen_addresses.h"
#include "group/peer_connect.h"
#include "group/roster/loss_grace.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "params/node/node_loss.h"
#include "params/node/node_receive.h"
#include "params/node/params_open.h"
#include "params/state/node_check.h"
#include "params/state/node_grace.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/sync/sync_round.h"
#include "params/tables/table_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_MOST (UINT64_C(1) << 41) /* a link exposes at most twice that to a peer */
#define QUEUE_MOST                                                                                 \
    (UINT32_C(1) << 22) /* messages per link: tickets and rounds are the real
                                         * limit */

/* --- connecting --- */

static ligi_params_hello current_hello(const lig_params *node)
{
    ligi_params_hello own = node->hello;
    own.group_id = node->group_id;
    own.rank = node->rank;
    own.incarnation = node->group ? ligi_group_incarnation(node->group) : 0;
    return own;
}

static void peer_came(ligi_params_peer *peer, ligi_link *link, const ligi_params_hello *other)
{
    char name[64];
    peer->link = link;
    peer->group_id = other->group_id;
    if (other->incarnation != 0) /* the peer may not know its rank yet; the group does */
        peer->incarnation = other->incarnation;
    peer->state = LIGI_PEER_MET;
    snprintf(name, sizeof name, "node %u", peer->rank);
    ligi_link_set_owner(link, peer);
    ligi_link_set_name(link, name);
}

/* The first message each way says where the sender's rows are mapped, or that they cannot be. */
static void share(ligi_params_peer *peer)
{
    lig_params *node = peer->node;
    uint64_t bytes = 0;
    struct iovec piece = {NULL, 0};
    ligi_params_message message = {
        .version = LIGI_PARAMS_MESSAGE_VERSION, .kind = LIGI_PARAMS_SHARE, .origin = node->rank};
    int done;
    if (node->region_bytes > 0 && node->region_bytes <= REGION_MOST &&
        ligi_link_maps_memory(peer->link))
        piece = (struct iovec){ligi_tables_region(node->tables, &bytes), node->region_bytes};
    ligi_send send = {.head = &message,
                      .head_bytes = sizeof message,
                      .iov = &piece,
                      .count = piece.iov_len > 0,
                      .flags = LIGI_SEND_LEND};
    peer->shared = 1;
    if (ligi_net_send(peer->link, &send, &done) != LIG_OK)
        ligi_node_break(node, LIG_E_PEER, lig_error_text());
}

/* A node with different tables has joined the same job: fatal for both. */
static lig_status read_hello(lig_params *node, const ligi_hello *hello, ligi_params_hello *other)
{
    ligi_params_hello own = current_hello(node);
    lig_status status = ligi_params_hello_check(&own, hello->data, hello->bytes, other);
    if (status != LIG_E_MISMATCH)
        return status;
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_node_break(node, status, failure.text);
    return ligi_failure_publish(&failure);
}

/* A peer of higher rank has connected. It may arrive before the group has released this node; then
 * it is checked later. */
static lig_status accept_peer(lig_params *node, ligi_link *link, const ligi_params_hello *other)
{
    if (other->rank >= node->node_count || other->rank == node->rank)
        return lig_fail(
            LIG_E_INVALID,
            "unexpected connection from node %u to node %u: the node with the higher rank connects",
            other->rank, node->rank);
    if (node->group)
        LIG_TRY(ligi_group_check(node->group, LIGI_SERVER, other->rank, other->incarnation));
    ligi_params_peer *peer = &node->peers[other->rank];
    if (peer->state != LIGI_PEER_AWAITED || peer->link)
        return lig_fail(LIG_E_EXISTS, "node %u is already connected, or was before", other->rank);
    peer_came(peer, link, other);
    return LIG_OK;
}

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    lig_params *node = context;
    ligi_params_hello other, own = current_hello(node);
    LIG_TRY(ligi_node_check(node));
    LIG_TRY(read_hello(node, hello, &other));
    ligi_params_peer *peer = ligi_link_owner(link);
    if (peer == NULL) {
        LIG_TRY(accept_peer(node, link, &other));
        memcpy(reply->data, &own, sizeof own);
        reply->bytes = sizeof own;
        ligi_net_hurry(node->net, LIGI_SERVICE_PARAMS); /* shared once the link is up */
        return LIG_OK;
    }
    if (other.rank != peer->rank && other.rank != UINT32_MAX) /* it may not know its rank yet */
        return lig_fail(LIG_E_MISMATCH, "expected node %u, but node %u answered", peer->rank,
                        other.rank);
    peer_came(peer, link, &other);
    ligi_net_hurry(node->net, LIGI_SERVICE_PARAMS);
    return LIG_OK;
}

static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    lig_params *node = context;
    ligi_params_peer *peer = ligi_link_owner(link);
    char why[LIGI_WHY_TEXT];
    snprintf(why, sizeof why, "%s", sentence);
    int current = peer && peer->link == link;
    if (current && ligi_node_postpone(peer, status, why))
        return;
    if (current)
        peer->link = NULL;
    ligi_link_close(link, NULL);
    if (!current)
        return;
    if (status == LIG_E_MISMATCH)
        ligi_node_break(node, status, why);
    if (peer->lent) {
        ligi_mapping_drop(peer->lent_mapping);
        peer->lent = NULL;
    }
    ligi_node_peer_lost(peer, status == LIG_E_CLOSED, why);
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_params_peer *peer = ligi_link_owner(link);
    (void)context;
    return peer && peer->link == link ? ligi_node_receive_head(peer, arrival, landing) : LIG_OK;
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    (void)context;
    (void)link;
    if (token)
        ligi_node_receive(token);
}

static void on_sent(void *context, ligi_link *link, void *token, lig_status status)
{
    (void)link;
    (void)status;
    ligi_node_sent(context, token);
}

static int64_t on_tick(void *context, int64_t now_ns)
{
    lig_params *node = context;
    ligi_node_end_doubt(node, now_ns);
    if (!node->made)
        return ligi_grace_next_ns(node->doubt_ns, INT64_MAX);
    for (uint32_t i = 0; i < node->node_count; i++) {
        ligi_params_peer *peer = &node->peers[i];
        if (peer->link && !peer->shared &&
            (peer->state == LIGI_PEER_MET || peer->state == LIGI_PEER_HERE))
            share(peer);
    }
    if (atomic_load(&node->broken))
        return INT64_MAX;
    int64_t next = ligi_sync_tick(node, now_ns);
    return ligi_grace_next_ns(node->doubt_ns, next);
}

static const ligi_net_hooks hooks = {.met = on_met,
                                     .head = on_head,
                                     .arrived = on_arrived,
                                     .sent = on_sent,
                                     .lost = on_lost,
                                     .tick = on_tick};

/* --- opening --- */

static lig_status join_group(lig_params *node, const lig_params_options *options,
                             int64_t timeout_ns)
{
    char address[LIGI_GROUP_URI_BYTES];
    LIG_TRY(ligi_group_uri(options->address ? options->address : "", address));
    ligi_group_options group = {
        .role = node->role == LIG_PARAMS_NODE ? LIGI_SERVER : LIGI_SCHEDULER,
        .rank = node->role == LIG_PARAMS_SCHEDULER ? 0
                : options->rank == UINT32_MAX      ? LIGI_RANK_ANY
                                                   : options->rank,
        .server_count = node->node_count,
        .coordinator = node->flags & LIG_PARAMS_HAS_SCHEDULER ? LIGI_COORDINATOR_BY_ROLE
                                                              : LIGI_COORDINATOR_FIRST,
        .host = options->host,
        .address = options->address ? address : NULL,
        .timeout_ns = timeout_ns,
        .liveness_ms = (uint32_t)(options->liveness_ns / 1000000),
        .exchange = options->exchange,
        .exchange_context = options->exchange_context,
        .exchange_index = options->rank,
        .exchange_count = node->node_count,
        .patience = options->patience,
        .patience_context = options->patience_context};
    ligi_group *opened;
    LIG_TRY(ligi_group_open(&opened, node->net, &group));
    ligi_net_lock(node->net); /* hooks read it */
    node->group = opened;
    node->group_id = ligi_group_id(opened);
    if (node->role == LIG_PARAMS_NODE)
        node->rank = ligi_group_rank(opened);
    ligi_net_unlock(node->net);
    return LIG_OK;
}

static lig_status connect_peer(ligi_params_peer *peer, int64_t timeout_ns)
{
    lig_params *node = peer->node;
    ligi_params_hello own = current_hello(node);
    ligi_connect how = {.only = node->transport,
                        .service = LIGI_SERVICE_PARAMS,
                        .hello = &own,
                        .hello_bytes = sizeof own,
                        .timeout_ns = timeout_ns,
                        .owner = peer};
    return ligi_group_connect(node->group, node->net, peer->rank, &how, &peer->incarnation,
                              &peer->link);
}

/* Under the lock. Checks the peers that connected before the group had assigned ranks. */
static lig_status meet_peer(ligi_params_peer *peer, int64_t timeout_ns)
{
    lig_params *node = peer->node;
    ligi_member member;
    LIG_TRY(ligi_group_member(node->group, LIGI_SERVER, peer->rank, &member));
    if (peer->state == LIGI_PEER_MET || peer->state == LIGI_PEER_HERE) {
        if (peer->group_id == node->group_id)
            return ligi_group_check(node->group, LIGI_SERVER, peer->rank, peer->incarnation);
        return lig_fail(LIG_E_DENIED, "node %u is not a member of the group", peer->rank);
    }
    if (member.state != LIGI_PRESENT)
        return lig_fail(LIG_E_PEER, "node %u is not connected any more", peer->rank);
    return peer->rank < node->rank ? connect_peer(peer, timeout_ns) : LIG_OK;
}

static int all_here(void *context)
{
    const lig_params *node = context;
    if (atomic_load(&node->broken))
        return 1;
    for (uint32_t i = 0; i < node->node_count; i++)
        if (i != node->rank && (node->peers[i].state != LIGI_PEER_HERE || !node->peers[i].shared))
            return 0;
    return 1;
}

static lig_status meet_all(lig_params *node, int64_t deadline_ns)
{
    lig_status status = LIG_OK;
    ligi_net_lock(node->net);
    node->made = 1;
    ligi_group_watch(node->group, ligi_node_member_changed, node);
    for (uint32_t i = 0; i < node->node_count && status == LIG_OK; i++)
        if (i != node->rank)
            status = meet_peer(&node->peers[i], ligi_time_left(deadline_ns));
    ligi_net_unlock(node->net);
    if (atomic_load(&node->broken))
        return ligi_failure_publish(&node->ended);
    LIG_TRY(status);
    ligi_net_hurry(node->net, LIGI_SERVICE_PARAMS);
    status = ligi_net_wait(node->net, all_here, node, ligi_time_left(deadline_ns));
    if (atomic_load(&node->broken))
        return ligi_failure_publish(&node->ended);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(status, "timeout: not all nodes have connected to node %u", node->rank);
    LIG_TRY(status);
    return lig_params_barrier(node, ligi_time_left(deadline_ns));
}

/* --- memory shared with peers on this host --- */

static lig_status make_region(void *context, uint64_t bytes, void **memory)
{
    lig_params *node = context;
    LIG_TRY(ligi_net_reserve(node->net, bytes, memory));
    ligi_net_lock(node->net);
    node->region_bytes = bytes;
    for (uint32_t i = 0; i < node->node_count; i++)
        ligi_params_peer_accept(&node->peers[i]);
    ligi_net_unlock(node->net);
    return LIG_OK;
}

static void destroy_region(void *context, void *memory, uint64_t bytes)
{
    lig_params *node = context;
    (void)bytes;
    ligi_net_free(node->net, memory);
}

lig_status ligi_node_connect(lig_params *node, const lig_params_options *options)
{
    int64_t deadline = ligi_time_until(node->timeout_ns > 0 ? node->timeout_ns : INT64_C(1) << 60);
    ligi_region_source source = {make_region, destroy_region, node};
    ligi_net_options net = {.secret = options->secret,
                            .secret_bytes = options->secret_bytes,
                            .group = "params",
                            .spin_ns = options->spin_ns,
                            .queue_max = QUEUE_MOST,
                            .stranger_max = node->node_count + 256,
                            .fabric = ligi_group_fabric(node->transport,
                                                        options->flags & LIG_PARAMS_TRUSTED_FABRIC,
                                                        options->flags & LIG_PARAMS_ANY_DEVICE),
                            .background = 1};
    node->lost = ligi_node_end_waits;
    LIG_TRY(ligi_calloc(&node->peers, node->node_count, sizeof *node->peers, "the nodes"));
    for (uint32_t i = 0; i < node->node_count; i++)
        node->peers[i] = (ligi_params_peer){.node = node, .rank = i};
    node->payload_max = ligi_params_payload_max(0); /* of peers that meet this node early */
    LIG_TRY(ligi_net_open(&node->net, &net));
    if (node->role == LIG_PARAMS_SCHEDULER)
        return join_group(node, options, ligi_time_left(deadline));
    ligi_params_hello_make(options, &node->hello);
    LIG_TRY(ligi_net_serve(node->net, LIGI_SERVICE_PARAMS, &hooks, node));
    LIG_TRY(
        ligi_group_listen(node->net, node->transport, options->address, options->secret != NULL));
    LIG_TRY(join_group(node, options, ligi_time_left(deadline)));
    int shared = node->node_count > 1 && ligi_group_shares_memory(node->transport);
    LIG_TRY(ligi_node_make_tables(node, options, shared ? &source : NULL));
    return meet_all(node, deadline);
}
