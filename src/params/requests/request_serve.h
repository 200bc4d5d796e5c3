/* Requests of other nodes: rows owned here are read and written, the rest is forwarded. */
#ifndef LIGI_REQUEST_SERVE_H
#define LIGI_REQUEST_SERVE_H

#include "params/state/node.h"

void ligi_serve_scratch_fini(ligi_serve_scratch *scratch);

/* Under the lock. */
lig_status ligi_params_request_serve(ligi_params_peer *peer, const ligi_params_message *message,
                                     const ligi_params_parts *parts);

#endif
