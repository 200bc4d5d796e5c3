/* Where requests of other nodes are worked on: arrays that are used again. */
#ifndef LIGI_DESK_H
#define LIGI_DESK_H

#include "params/node.h"

void ligi_desk_fini(ligi_desk *desk);

#endif
