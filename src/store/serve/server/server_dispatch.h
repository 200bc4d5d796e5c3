/* Answers requests: one function per operation. */
#ifndef LIGI_SERVER_DISPATCH_H
#define LIGI_SERVER_DISPATCH_H

#include "store/serve/server/server_state.h"

/* On a worker: answers, and frees the job. */
void ligi_served_request_run(ligi_served_worker *worker, ligi_served_job *job);
/* For a request that is too long for the thread that receives: 1 if it is now a worker's, and the
 * call is over; 0: it is on a worker already. */
int ligi_served_pass_on(ligi_served_call *call);
/* Answers a request that was put aside; frees the job. */
void ligi_served_request_end(ligi_served_call *call, lig_status status);

#endif
