/* How a node leaves the others: shutdown, and the end of its links. */
#ifndef LIGI_NODE_LEAVE_H
#define LIGI_NODE_LEAVE_H

#include "params/node/node_connect.h"

void ligi_node_free_peers(lig_params *node);

#endif
