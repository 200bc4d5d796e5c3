#include "params/state/peer.h"

#include "group/session/session_end.h"
#include "group/session/session_peer.h"
#include "net/link/link_send.h"
#include "params/state/send_buffer.h"

#include <string.h>

static lig_status send_outgoing(ligi_params_peer *peer, const ligi_params_outgoing *outgoing,
                                int *done)
{
    uint8_t head[LIGI_PARAMS_HEAD_MAX];
    ligi_send_buffer *buffer = outgoing->buffer;
    struct iovec piece = {buffer ? buffer->data : NULL, buffer ? buffer->bytes : 0};
    ligi_params_message message = outgoing->message;
    message.version = LIGI_PARAMS_MESSAGE_VERSION;
    memcpy(head, &message, sizeof message);
    if (outgoing->tail_bytes > 0)
        memcpy(head + sizeof message, outgoing->tail, outgoing->tail_bytes);
    ligi_send send = {.head = head,
                      .head_bytes = sizeof message + outgoing->tail_bytes,
                      .iov = &piece,
                      .count = piece.iov_len > 0,
                      .flags = outgoing->send_flags,
                      .token = buffer};
    if (peer->base.link == NULL)
        return ligi_session_peer_fail(&peer->base);
    return ligi_net_send(peer->base.link, &send, done);
}

lig_status ligi_params_peer_send(ligi_params_peer *peer, const ligi_params_outgoing *outgoing)
{
    lig_params *node = peer->node;
    int done = 1;
    lig_status status = send_outgoing(peer, outgoing, &done);
    if (status != LIG_OK || done)
        ligi_send_buffer_drop(node, outgoing->buffer);
    /* During shutdown some peers are a step ahead: messages to them no longer matter. */
    if (status == LIG_OK || node->session.leaving)
        return LIG_OK;
    ligi_session_fail(&node->session, LIG_E_PEER, lig_error_text());
    return status;
}

void ligi_params_peer_accept(ligi_params_peer *peer)
{
    const lig_params *node = peer->node;
    if (node->region_bytes > 0 && peer->offered_bytes == node->region_bytes)
        peer->region = peer->offered;
}
