/* The end of a worker's requests: responses, failures, and waiting for them. */
#ifndef LIGI_REQUEST_COMPLETE_H
#define LIGI_REQUEST_COMPLETE_H

#include "params/state/node_state.h"

/* One of its requests fails now, unless it has ended. Under the lock. */
void ligi_params_request_end(lig_params_worker *worker, ligi_request_ticket *ticket,
                             lig_status status, const char *sentence);
/* Its open requests fail; nothing writes to the caller's memory from now on. Under the lock. */
void ligi_params_request_abandon(lig_params_worker *worker, lig_status status,
                                 const char *sentence);
/* What was lent and not answered goes back; after net is closed; no lock. */
void ligi_params_request_forget(lig_params *node);
/* `rank` answers. Under the lock. */
lig_status ligi_params_request_answered(lig_params *node, uint32_t rank,
                                        const ligi_params_message *message,
                                        const ligi_params_parts *parts);

#endif
