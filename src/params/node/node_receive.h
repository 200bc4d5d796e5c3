/* Messages from peers: where their payload is stored, and which module handles them. */
#ifndef LIGI_NODE_RECEIVE_H
#define LIGI_NODE_RECEIVE_H

#include "params/node/node_connect.h"

/* Called by the hooks of net, under the lock. */
lig_status ligi_node_receive_head(ligi_params_peer *peer, const ligi_arrival *arrival,
                                  ligi_landing *landing);
void ligi_node_receive(ligi_params_peer *peer);

#endif
