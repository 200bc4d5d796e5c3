/* Many similar requests, several in flight, from one thread. */
#ifndef LIGI_S3_PARALLEL_H
#define LIGI_S3_PARALLEL_H

#include "backend/s3/client/s3_client.h"

#define LIGI_S3_SHORT_KEY_BYTES 96 /* of the names that the engine gives, with a NUL */

typedef struct ligi_s3_slot {
    ligi_s3_transfer transfer; /* its key may be `key` */
    size_t index;
    char key[LIGI_S3_SHORT_KEY_BYTES];
} ligi_s3_slot;

typedef struct ligi_s3_work {
    size_t count;
    unsigned window; /* in flight at once */
    /* Fills slot->transfer for request number `index`; the slot is zero but for its index. */
    void (*prepare)(void *context, ligi_s3_slot *slot);
    /* A request has ended; a failure, with an error text, ends the work. Called in any order, on
     * the calling thread. `received` is freed afterwards. */
    lig_status (*ended)(void *context, ligi_s3_slot *slot);
    void *context;
} ligi_s3_work;

/* Returns when nothing is in flight any more. */
lig_status ligi_s3_parallel(ligi_s3_client *client, const ligi_s3_work *work);

#endif
