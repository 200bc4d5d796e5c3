#include "params/state/peer.h"

#include "params/state/send_buffer.h"

#include <string.h>

static lig_status send_post(ligi_peer *peer, const ligi_post *post, int *done)
{
    uint8_t head[LIGI_LETTER_HEAD_MAX];
    ligi_parcel *parcel = post->parcel;
    struct iovec piece = {parcel ? parcel->data : NULL, parcel ? parcel->bytes : 0};
    ligi_letter letter = post->letter;
    letter.version = LIGI_LETTER_VERSION;
    memcpy(head, &letter, sizeof letter);
    if (post->tail_bytes > 0)
        memcpy(head + sizeof letter, post->tail, post->tail_bytes);
    ligi_send send = {.head = head,
                      .head_bytes = sizeof letter + post->tail_bytes,
                      .iov = &piece,
                      .count = piece.iov_len > 0,
                      .flags = post->send_flags,
                      .token = parcel};
    if (peer->link == NULL)
        return lig_fail(LIG_E_PEER, "node %u is gone: %s", peer->rank, peer->why);
    return ligi_net_send(peer->link, &send, done);
}

lig_status ligi_peer_post(ligi_peer *peer, const ligi_post *post)
{
    lig_params *node = peer->node;
    int done = 1;
    lig_status status = send_post(peer, post, &done);
    if (status != LIG_OK || done)
        ligi_parcel_drop(node, post->parcel);
    /* All are leaving, and some are a step ahead: nothing that is still said matters to them. */
    if (status == LIG_OK || node->leaving)
        return LIG_OK;
    ligi_node_break(node, LIG_E_PEER, lig_error_text());
    return status;
}

void ligi_peer_accept(ligi_peer *peer)
{
    const lig_params *node = peer->node;
    if (node->region_bytes > 0 && peer->offered_bytes == node->region_bytes)
        peer->region = peer->offered;
}
