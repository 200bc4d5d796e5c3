/* Sending to a peer, and the region of rows that it shares. */
#ifndef LIGI_PEER_H
#define LIGI_PEER_H

#include "params/state/node.h"

/* One message with the first buffer->bytes of a buffer (NULL: none), which is released when sent;
 * `tail` follows the message in the head. A failure breaks the node unless it is already broken, so
 * callers inside hooks may ignore it. */
lig_status ligi_params_peer_send(ligi_params_peer *peer, const ligi_params_outgoing *outgoing);
/* Maps the region that the peer offered, if possible; under the lock. */
void ligi_params_peer_accept(ligi_params_peer *peer);

#endif
