/* What the parameter manager adds to its session (group/session/session.h): the hello with the
 * tables, and the rows that nodes of one host share. */
#include "params/node/node_connect.h"

#include "group/group_info.h"
#include "group/listen_addresses.h"
#include "group/session/session_end.h"
#include "group/session/session_meet.h"
#include "group/session/session_peer.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/service.h"
#include "params/node/node_receive.h"
#include "params/node/params_open.h"
#include "params/requests/request_complete.h"
#include "params/state/node_wait.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"
#include "params/tables/table_info.h"

#include <string.h>

#define REGION_MOST (UINT64_C(1) << 41) /* a link exposes at most twice that to a peer */
#define QUEUE_MOST                                                                                 \
    (UINT32_C(1) << 22) /* messages per link: tickets and rounds are the real
                                         * limit */

/* --- connecting --- */

static ligi_params_hello current_hello(const lig_params *node)
{
    ligi_params_hello own = node->hello;
    ligi_group *group = node->session.group;
    own.group_id = node->session.group_id;
    own.rank = group ? ligi_group_rank(group) : node->rank;
    own.incarnation = group ? ligi_group_incarnation(group) : 0;
    return own;
}

static void greet(void *context, ligi_reply *reply)
{
    ligi_params_hello own = current_hello(context);
    memcpy(reply->data, &own, sizeof own);
    reply->bytes = sizeof own;
}

/* A node with different tables has joined the same job: fatal for both. */
static lig_status check(void *context, const ligi_hello *hello, ligi_session_claim *claim)
{
    lig_params *node = context;
    ligi_params_hello other, own = current_hello(node);
    ligi_failure failure;
    lig_status status = ligi_params_hello_check(&own, hello->data, hello->bytes, &other);
    ligi_failure_take(&failure, status);
    if (status == LIG_E_MISMATCH)
        ligi_session_end(&node->session, status, failure.text);
    if (status == LIG_OK)
        *claim = (ligi_session_claim){.role = LIGI_SERVER,
                                      .rank = other.rank,
                                      .incarnation = other.incarnation,
                                      .group_id = other.group_id};
    return ligi_failure_publish(&failure);
}

static lig_status find(void *context, const ligi_session_claim *claim, ligi_session_peer **peer)
{
    lig_params *node = context;
    if (claim->rank >= node->node_count || claim->rank == node->rank)
        return lig_fail(
            LIG_E_INVALID,
            "unexpected connection from node %u to node %u: the node with the higher rank connects",
            claim->rank, node->rank);
    *peer = &node->peers[claim->rank].base;
    return LIG_OK;
}

static void came(ligi_session_peer *peer, const ligi_hello *hello)
{
    (void)hello;
    ligi_net_hurry(peer->session->net, LIGI_SERVICE_PARAMS); /* shared once the link is up */
}

static void gone(ligi_session_peer *base, ligi_member_state before)
{
    ligi_params_peer *peer = (ligi_params_peer *)base;
    (void)before;
    if (peer->lent == NULL)
        return;
    ligi_mapping_drop(peer->lent_mapping);
    peer->lent = NULL;
}

/* The whole job ends: the rows of a lost node exist only in the last save. */
static void ended(void *context)
{
    lig_params *node = context;
    const ligi_failure *why = &node->session.ended;
    for (uint32_t i = 0; i < node->worker_count; i++)
        if (node->workers[i])
            ligi_params_request_abandon(node->workers[i], why->status, why->text);
    pthread_mutex_lock(&node->barrier.lock);
    pthread_cond_broadcast(&node->barrier.changed);
    pthread_mutex_unlock(&node->barrier.lock);
}

/* The first message in each direction says where the sender's rows are mapped, or that they cannot
 * be mapped. */
static void share(ligi_params_peer *peer)
{
    lig_params *node = peer->node;
    uint64_t bytes = 0;
    struct iovec piece = {NULL, 0};
    ligi_params_message message = {
        .version = LIGI_PARAMS_MESSAGE_VERSION, .kind = LIGI_PARAMS_SHARE, .origin = node->rank};
    int done;
    if (node->region_bytes > 0 && node->region_bytes <= REGION_MOST &&
        ligi_link_maps_memory(peer->base.link))
        piece = (struct iovec){ligi_tables_region(node->tables, &bytes), node->region_bytes};
    ligi_send send = {.head = &message,
                      .head_bytes = sizeof message,
                      .iov = &piece,
                      .count = piece.iov_len > 0,
                      .flags = LIGI_SEND_LEND};
    peer->shared = 1;
    if (ligi_net_send(peer->base.link, &send, &done) != LIG_OK)
        ligi_session_fail(&node->session, LIG_E_PEER, lig_error_text());
}

static lig_status on_head(ligi_session_peer *peer, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    return ligi_node_receive_head((ligi_params_peer *)peer, arrival, landing);
}

static void on_arrived(ligi_session_peer *peer, void *token)
{
    (void)peer;
    ligi_node_receive(token);
}

static void on_sent(ligi_session_peer *peer, void *token, lig_status status)
{
    (void)status;
    ligi_send_buffer_drop(peer->session->context, token);
}

static int64_t on_tick(void *context, int64_t now_ns)
{
    lig_params *node = context;
    if (!node->made)
        return INT64_MAX;
    for (uint32_t i = 0; i < node->node_count; i++) {
        ligi_params_peer *peer = &node->peers[i];
        if (peer->base.link && !peer->shared && peer->base.state == LIGI_PRESENT)
            share(peer);
    }
    return atomic_load(&node->session.broken) ? INT64_MAX : ligi_sync_tick(node, now_ns);
}

const ligi_session_ops ligi_node_session = {
    .service = LIGI_SERVICE_PARAMS,
    .name = "params",
    .forked = "the parameter manager belongs to the parent process (forked)",
    .closed = "the parameters have been shut down",
    .needs_all = 1,
    .greet = greet,
    .check = check,
    .find = find,
    .came = came,
    .gone = gone,
    .ended = ended,
    .head = on_head,
    .arrived = on_arrived,
    .sent = on_sent,
    .tick = on_tick,
};

/* --- opening --- */

static int all_answered(void *context)
{
    const lig_params *node = context;
    if (atomic_load(&node->session.broken))
        return 1;
    for (uint32_t i = 0; i < node->node_count; i++)
        if (i != node->rank && !(node->peers[i].answered && node->peers[i].shared))
            return 0;
    return 1;
}

static lig_status meet_all(lig_params *node)
{
    ligi_session *session = &node->session;
    ligi_net_lock(session->net);
    node->made = 1;
    ligi_net_unlock(session->net);
    LIG_TRY(ligi_session_meet(session));
    ligi_net_hurry(session->net, LIGI_SERVICE_PARAMS);
    lig_status status =
        ligi_net_wait(session->net, all_answered, node, ligi_time_left(session->deadline_ns));
    LIG_TRY(ligi_session_usable(session));
    if (status == LIG_E_TIMEOUT)
        return lig_fail(status, "timeout: not all nodes have connected to node %u", node->rank);
    LIG_TRY(status);
    return lig_params_barrier(node, ligi_time_left(session->deadline_ns));
}

/* --- memory shared with peers on this host --- */

static lig_status make_region(void *context, uint64_t bytes, void **memory)
{
    lig_params *node = context;
    LIG_TRY(ligi_net_reserve(node->session.net, bytes, memory));
    ligi_net_lock(node->session.net);
    node->region_bytes = bytes;
    for (uint32_t i = 0; i < node->node_count; i++)
        ligi_params_peer_accept(&node->peers[i]);
    ligi_net_unlock(node->session.net);
    return LIG_OK;
}

static void destroy_region(void *context, void *memory, uint64_t bytes)
{
    lig_params *node = context;
    (void)bytes;
    ligi_net_free(node->session.net, memory);
}

static lig_status make_peers(lig_params *node)
{
    LIG_TRY(ligi_calloc(&node->peers, node->node_count, sizeof *node->peers, "the nodes"));
    for (uint32_t i = node->node_count; i-- > 0;) { /* the first one added is the last one met */
        ligi_params_peer *peer = &node->peers[i];
        peer->node = node;
        peer->base = (ligi_session_peer){
            .session = &node->session, .noun = "node", .index = i, .role = LIGI_SERVER, .rank = i};
        ligi_session_add(&peer->base);
    }
    return LIG_OK;
}

static lig_status open_session(lig_params *node, const lig_params_options *options)
{
    int scheduler = node->role == LIG_PARAMS_SCHEDULER;
    ligi_session_options session = {
        .net = {.secret = options->secret,
                .secret_bytes = options->secret_bytes,
                .spin_ns = options->spin_ns,
                .queue_max = QUEUE_MOST,
                .stranger_max = node->node_count + 256},
        .group = {.role = scheduler ? LIGI_SCHEDULER : LIGI_SERVER,
                  .rank = options->rank, /* LIGI_RANK_ANY is the same number */
                  .server_count = node->node_count,
                  .coordinator = node->flags & LIG_PARAMS_HAS_SCHEDULER ? LIGI_COORDINATOR_BY_ROLE
                                                                        : LIGI_COORDINATOR_FIRST,
                  .host = options->host,
                  .address = options->address,
                  .exchange = options->exchange,
                  .exchange_context = options->exchange_context,
                  .exchange_index = options->rank,
                  .exchange_count = node->node_count,
                  .patience = options->patience,
                  .patience_context = options->patience_context},
        .timeout_ns = node->timeout_ns,
        .liveness_ns = options->liveness_ns,
        .transport = options->transport,
        .trusted_fabric = (options->flags & LIG_PARAMS_TRUSTED_FABRIC) != 0,
        .any_device = (options->flags & LIG_PARAMS_ANY_DEVICE) != 0,
        .listens = 1};
    LIG_TRY(ligi_session_open(&node->session, &session));
    if (scheduler)
        return LIG_OK;
    ligi_net_lock(node->session.net); /* hooks read it */
    node->rank = ligi_group_rank(node->session.group);
    ligi_session_remove(&node->peers[node->rank].base);
    ligi_net_unlock(node->session.net);
    return LIG_OK;
}

lig_status ligi_node_connect(lig_params *node, const lig_params_options *options)
{
    ligi_region_source source = {make_region, destroy_region, node};
    LIG_TRY(make_peers(node));
    node->payload_max = ligi_params_payload_max(0); /* of peers that meet this node early */
    if (node->role == LIG_PARAMS_NODE)
        ligi_params_hello_make(options, &node->hello);
    LIG_TRY(open_session(node, options));
    if (node->role == LIG_PARAMS_SCHEDULER)
        return LIG_OK;
    int shared = node->node_count > 1 && ligi_group_shares_memory(node->session.transport);
    LIG_TRY(ligi_node_make_tables(node, options, shared ? &source : NULL));
    return meet_all(node);
}
