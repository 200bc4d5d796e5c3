/* Answers requests: one function per operation. */
#ifndef LIGI_SERVER_DISPATCH_H
#define LIGI_SERVER_DISPATCH_H

#include "store/serve/server/server_state.h"

/* On a worker: answers, and frees the job. */
void ligi_served_request_run(ligi_served_worker *worker, ligi_served_job *job);
/* Answers a request that was put aside; frees the job. */
void ligi_served_request_end(ligi_served_call *call, lig_status status);

#endif
