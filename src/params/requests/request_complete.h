/* The end of a worker's requests: responses, failures, and waiting for them. */
#ifndef LIGI_REQUEST_COMPLETE_H
#define LIGI_REQUEST_COMPLETE_H

#include "params/state/node.h"

/* Fails one of the worker's requests, unless it has ended. Under the lock. */
void ligi_params_request_end(lig_params_worker *worker, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence);
/* Fails all open requests of a worker; nothing writes to the caller's memory from now on. Under the
 * lock. */
void ligi_params_request_abandon(lig_params_worker *worker, lig_status status,
                                 const char *sentence);
/* Returns buffers that were lent and not answered. Called after net is closed, without the lock. */
void ligi_params_request_forget(lig_params *node);
/* A response from `rank`. Under the lock. */
lig_status ligi_params_request_answered(lig_params *node, uint32_t rank,
                                        const ligi_params_message *message,
                                        const ligi_params_parts *parts);

#endif
