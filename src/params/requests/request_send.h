/* Requests of a worker to other nodes: their order, and which node is asked for which keys. */
#ifndef LIGI_REQUEST_SEND_H
#define LIGI_REQUEST_SEND_H

#include "params/state/node_state.h"

/* Requests the keys of batch->misses (after read or write) from other nodes: accesses that need no
 * message are done at once, the rest gets a ticket. LIG_PARAMS_LOCAL: nothing is left;
 * LIG_PARAMS_SHARED: likewise, and rows were read from the memory of peers. */
lig_status ligi_params_request_send(lig_params_worker *worker, ligi_verb verb, ligi_batch *batch,
                                    int64_t *ticket);
/* Waits for requests of this worker that an access of these keys must not overtake. */
lig_status ligi_params_request_order(lig_params_worker *worker, ligi_verb verb,
                                     const ligi_batch *batch);
/* 1 if there is none: nothing to wait for. */
int ligi_params_request_may(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch);
lig_status ligi_params_request_state_create(lig_params_worker *worker);
void ligi_params_request_state_destroy(lig_params_worker *worker);

#endif
