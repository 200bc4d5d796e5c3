/* Requests of other nodes: rows owned here are read and written, the rest is forwarded. */
#ifndef LIGI_REQUEST_SERVE_H
#define LIGI_REQUEST_SERVE_H

#include "params/state/node_state.h"

void ligi_desk_fini(ligi_desk *desk);

/* Under the lock. */
lig_status ligi_answer_ask(ligi_peer *peer, const ligi_letter *letter, const ligi_parts *parts);

#endif
