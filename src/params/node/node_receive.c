#include "params/node/node_receive.h"

#include "group/session/session_end.h"
#include "net/link/link.h"
#include "params/node/node_connect.h"
#include "params/requests/request_complete.h"
#include "params/requests/request_serve.h"
#include "params/rows/slab.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/state/peer.h"
#include "params/state/send_buffer.h"
#include "params/sync/sync_round.h"

#include <stdlib.h>
#include <string.h>

/* The region of a peer on this host: mapped read-only until the node closes. It may arrive before
 * this node has created its own region and knows the size of a region. */
static lig_status take_region(ligi_params_peer *peer, const ligi_arrival *arrival)
{
    if (peer->answered)
        return lig_fail(LIG_E_CORRUPT, "protocol error from node %u: it shared its rows twice",
                        peer->base.rank);
    if (arrival->piece_count == 1 && arrival->pieces[0].shared &&
        (uintptr_t)arrival->pieces[0].shared % 64 == 0) {
        ligi_piece *piece = &arrival->pieces[0];
        piece->taken = 1;
        ligi_mapping_keep(piece->mapping);
        peer->mapping = piece->mapping;
        peer->offered = piece->shared;
        peer->offered_bytes = arrival->payload_bytes;
        ligi_params_peer_accept(peer);
    }
    peer->answered = 1;
    return LIG_OK;
}

static int may_take(const ligi_params_message *message)
{
    int of_sync = message->kind == LIGI_PARAMS_SYNC || message->kind == LIGI_PARAMS_UPDATE;
    return message->kind == LIGI_PARAMS_REQUEST || (of_sync && (message->flags & LIGI_PARAMS_LENT));
}

/* Writes and sync rows are read in place; every other payload is moved into the inbox. */
static lig_status place_payload(ligi_params_peer *peer, const ligi_arrival *arrival,
                                ligi_landing *landing)
{
    ligi_piece *piece = arrival->piece_count == 1 ? &arrival->pieces[0] : NULL;
    peer->lent = NULL;
    if (may_take(&peer->message) && piece && piece->shared && (uintptr_t)piece->shared % 8 == 0) {
        piece->taken = 1;
        ligi_mapping_keep(piece->mapping);
        peer->lent = piece->shared;
        peer->lent_mapping = piece->mapping;
        return LIG_OK;
    }
    LIG_TRY(ligi_grow(&peer->inbox, &peer->inbox_room, arrival->payload_bytes + 8, 1, "a message"));
    peer->landing = (struct iovec){peer->inbox, arrival->payload_bytes};
    landing->iov = &peer->landing;
    landing->count = arrival->payload_bytes > 0;
    return LIG_OK;
}

lig_status ligi_node_receive_head(ligi_params_peer *peer, const ligi_arrival *arrival,
                                  ligi_landing *landing)
{
    lig_params *node = peer->node;
    LIG_TRY(ligi_params_message_check(arrival->head, arrival->head_bytes, arrival->payload_bytes,
                                      node->payload_max, &node->hello, &peer->message));
    if (peer->message.kind == LIGI_PARAMS_SHARE)
        return take_region(peer, arrival);
    if (!node->made)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: request from node %u before this node is ready",
                        peer->base.rank);
    memcpy(peer->head, arrival->head, arrival->head_bytes);
    peer->head_bytes = arrival->head_bytes;
    peer->payload_bytes = arrival->payload_bytes;
    landing->token = peer;
    return place_payload(peer, arrival, landing);
}

static lig_status take_message(ligi_params_peer *peer)
{
    lig_params *node = peer->node;
    const ligi_params_message *message = &peer->message;
    const void *payload = peer->lent ? peer->lent : peer->inbox;
    ligi_params_parts parts;
    ligi_params_message_open(message, peer->head, peer->head_bytes, payload, peer->payload_bytes,
                             &parts);
    switch (message->kind) {
    case LIGI_PARAMS_REQUEST: return ligi_params_request_serve(peer, message, &parts);
    case LIGI_PARAMS_RESPONSE:
        return ligi_params_request_answered(node, peer->base.rank, message, &parts);
    case LIGI_PARAMS_SNAPSHOT:
        return ligi_params_snapshot_arrived(peer, message, payload, peer->payload_bytes);
    default: return ligi_sync_arrived(peer, message, &parts);
    }
}

void ligi_node_receive(ligi_params_peer *peer)
{
    lig_params *node = peer->node;
    lig_status status = LIG_OK;
    if (!atomic_load(&node->session.broken) || ligi_params_snapshot_tells_why(&peer->message))
        status = take_message(peer);
    if (peer->lent) {
        ligi_mapping_drop(peer->lent_mapping);
        peer->lent = NULL;
    }
    if (peer->inbox_room > 2 * LIGI_PARAMS_PAYLOAD_MAX) { /* of a row that is nearly unique */
        free(peer->inbox);
        peer->inbox = NULL;
        peer->inbox_room = 0;
    }
    if (status == LIG_OK)
        return;
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    lig_fail(status, "protocol error from node %u: %s", peer->base.rank, failure.text);
    ligi_session_fail(&node->session, LIG_E_PEER, lig_error_text());
}
