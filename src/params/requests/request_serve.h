/* Where requests of other nodes are worked on: arrays that are used again. */
#ifndef LIGI_REQUEST_SERVE_H
#define LIGI_REQUEST_SERVE_H

#include "params/state/node_state.h"

void ligi_desk_fini(ligi_desk *desk);

#endif
