/* The engine's state: one bucket and prefix. **shared** */
#ifndef LIGI_S3_H
#define LIGI_S3_H

#include <pthread.h>

#include "backend/remote/storage_engine.h"
#include "backend/s3/client/s3_client.h"
#include "backend/s3/client/s3_parallel.h"

#define LIGI_S3_PART_BYTES (UINT64_C(8) << 20) /* S3's least is 5 MiB */
#define LIGI_S3_UPLOADS 8                      /* parts of one object in flight */
#define LIGI_S3_SPARE_PARTS 16                 /* buffers that are kept for the next object */
#define LIGI_S3_WINDOW 16                      /* small requests of one call in flight */

typedef struct ligi_s3_options {
    char *endpoint, *region, *ca, *proxy, *addressing, *writer;
    int64_t connections;
} ligi_s3_options;

typedef struct ligi_s3 {
    const ligi_engine_host *host;
    ligi_s3_client *client;
    int64_t timeout_ns;
    int read_only, single_writer;

    pthread_mutex_t lock; /* guards the next three */
    int conditional;      /* conditional writes are known to work here */
    void *spare[LIGI_S3_SPARE_PARTS];
    unsigned spare_count;
    pthread_mutex_t removals_lock; /* guards the next */
    ligi_s3_batch removals;        /* in the background: released claims and pins */
} ligi_s3;

/* A buffer of LIGI_S3_PART_BYTES, page aligned; NULL if memory is exhausted. */
void *ligi_s3_part_take(ligi_s3 *s3);
void ligi_s3_part_give(ligi_s3 *s3, void *part);

/* Removes an object without waiting. */
void ligi_s3_remove_later(ligi_s3 *s3, const char *key);
/* Waits for these removals: before questions whose answer depends on them. */
void ligi_s3_remove_wait(ligi_s3 *s3);

#endif
