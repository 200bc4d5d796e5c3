/* Requests of a worker to other nodes: which node gets which keys. */
#ifndef LIGI_REQUEST_SEND_H
#define LIGI_REQUEST_SEND_H

#include "params/state/node.h"

/* Requests the keys of batch->misses (after read or write) from other nodes: accesses that need no
 * message are done at once, the rest gets a ticket. LIG_PARAMS_LOCAL: nothing is left;
 * LIG_PARAMS_SHARED: likewise, and rows were read from the memory of peers. */
lig_status ligi_params_request_send(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch,
                                    int64_t *ticket);

#endif
