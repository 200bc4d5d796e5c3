/* Answers requests: one function per operation. */
#ifndef LIGI_SERVER_DISPATCH_H
#define LIGI_SERVER_DISPATCH_H

#include "store/serve/server/server_state.h"

/* On a worker: answers, and frees the job. A saver's saves are answered by the next sync. */
void ligi_served_request_run(ligi_served_worker *worker, ligi_served_job *job);
/* Makes the saves of a saver durable, and answers them; does nothing if there are none. */
void ligi_served_sync(ligi_served_worker *worker);
/* For a request that is too long for the receiving thread: 1 if it was passed to a worker, and the
 * call ends; 0: it runs on a worker already. */
int ligi_served_pass_on(ligi_served_call *call);
/* Answers a request that was put aside; frees the job. */
void ligi_served_request_end(ligi_served_call *call, lig_status status);

#endif
