/* What is sent to a peer, and the region of rows that it shares. */
#ifndef LIGI_PEER_H
#define LIGI_PEER_H

#include "params/state/node_state.h"

/* One message with the first buffer->bytes of a buffer (NULL: none), which is dropped when it has
 * gone; `tail` follows the message in the head. A failure breaks the node unless it is broken
 * already, so callers inside hooks may ignore it. */
lig_status ligi_params_peer_send(ligi_params_peer *peer, const ligi_params_outgoing *outgoing);
/* Takes what it offered for its region, if it can be; under the lock. */
void ligi_params_peer_accept(ligi_params_peer *peer);

#endif
