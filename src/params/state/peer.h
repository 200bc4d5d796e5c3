/* What is sent to a peer, and the region of rows that it shares. */
#ifndef LIGI_PEER_H
#define LIGI_PEER_H

#include "params/state/node_state.h"

/* One message with the first parcel->bytes of a parcel (NULL: none), which is dropped when it has
 * gone; `tail` follows the letter in the head. A failure breaks the node unless it is broken
 * already, so callers inside hooks may ignore it. */
lig_status ligi_peer_post(ligi_peer *peer, const ligi_post *post);
/* Takes what it offered for its region, if it can be; under the lock. */
void ligi_peer_accept(ligi_peer *peer);

#endif
