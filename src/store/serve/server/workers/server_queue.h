/* The queue of requests that wait for a worker. */
#ifndef LIGI_SERVER_QUEUE_H
#define LIGI_SERVER_QUEUE_H

#include "store/serve/server/server_state.h"

/* A job that is not a request: `work` runs on a worker and frees it. NULL if out of memory. */
ligi_served_job *ligi_served_job_make(ligi_served_session *session,
                                      void (*work)(ligi_served_job *job), void *context);
/* Returns the bytes it was charged and releases its session. Never blocks. */
void ligi_served_job_free(ligi_served_job *job);

/* Before anything is put. */
void ligi_served_queue_init(ligi_served_queue *queue);
lig_status ligi_served_queue_start(lig_server *server, size_t workers);
/* Runs what is queued, then ends the workers. */
void ligi_served_queue_stop(lig_server *server);

/* Never blocks. */
void ligi_served_queue_put(ligi_served_queue *queue, ligi_served_job *job);
/* Counts a request that runs elsewhere as running. */
void ligi_served_queue_begin(ligi_served_queue *queue);
void ligi_served_queue_end(ligi_served_queue *queue);
/* On a worker whose request waits for other processes: replies to the saves before it are sent, and
 * another worker may run the saves that wait. */
void ligi_served_queue_blocked(ligi_served_worker *worker);
/* Waits until nothing is queued and nothing runs; LIG_E_TIMEOUT. */
lig_status ligi_served_queue_drain(ligi_served_queue *queue, int64_t timeout_ns);

#endif
