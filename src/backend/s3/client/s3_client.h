/* A client of one bucket: one thread that drives libcurl's multi interface, persistent connections,
 * retries with back-off. **shared** */
#ifndef LIGI_S3_CLIENT_H
#define LIGI_S3_CLIENT_H

#include <pthread.h>

#include "backend/remote/storage_engine.h"
#include "backend/s3/client/s3_attempt.h"

typedef struct ligi_s3_client ligi_s3_client;

typedef struct ligi_s3_client_options {
    const ligi_engine_host *host; /* stays valid */
    ligi_s3_place place;
    const char *ca, *proxy; /* may be NULL; copied */
    unsigned connections;   /* for bulk transfers */
    int64_t connect_ns, stall_ns;
} ligi_s3_client_options;

lig_status ligi_s3_client_open(const ligi_s3_client_options *options, ligi_s3_client **client);
/* All transfers have ended. In a forked child (`forked`) the thread does not exist, and closing
 * a TLS connection would write into the parent's: memory of libcurl is left to the end of the
 * process. */
void ligi_s3_client_close(ligi_s3_client *client, int forked);

const ligi_engine_host *ligi_s3_client_host(const ligi_s3_client *client);
const ligi_s3_place *ligi_s3_client_place(const ligi_s3_client *client);
unsigned ligi_s3_client_connections(const ligi_s3_client *client);
/* The server's clock (since 1970): the last Date that it sent, and the time since. 0 before the
 * first response. */
int64_t ligi_s3_client_now_ns(ligi_s3_client *client);
/* Reports a transfer that failed: `what` as in ligi_s3_subject. */
lig_status ligi_s3_client_fail(ligi_s3_client *client, const ligi_s3_transfer *transfer,
                               const char *what);

/* Transfers in flight for one thread. */
typedef struct ligi_s3_batch {
    ligi_s3_client *client;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    ligi_s3_transfer *first, *last; /* that have ended and were not collected */
    size_t flying;                  /* started and not collected */
} ligi_s3_batch;

void ligi_s3_batch_init(ligi_s3_batch *batch, ligi_s3_client *client);
/* No transfer is in flight. */
void ligi_s3_batch_fini(ligi_s3_batch *batch);
void ligi_s3_batch_start(ligi_s3_batch *batch, ligi_s3_transfer *transfer);
/* Waits for a transfer and returns it; NULL if none is in flight. Ends, because transfers do. */
ligi_s3_transfer *ligi_s3_batch_next(ligi_s3_batch *batch);
/* The same without waiting: NULL also if none has ended. */
ligi_s3_transfer *ligi_s3_batch_ended(ligi_s3_batch *batch);
/* The transfer ends soon; it may have been executed. It is still returned by next. */
void ligi_s3_batch_cancel(ligi_s3_batch *batch, ligi_s3_transfer *transfer);

/* Executes one transfer. */
void ligi_s3_client_perform(ligi_s3_client *client, ligi_s3_transfer *transfer);
/* The pause between two attempts that the caller makes. */
void ligi_s3_client_pause(int64_t pause_ns);
uint64_t ligi_s3_client_random(ligi_s3_client *client);

#endif
