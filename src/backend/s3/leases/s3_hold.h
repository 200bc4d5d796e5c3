/* The claim of a pack's writer: hold/<id>, written with put-if-absent before anything else. */
#ifndef LIGI_S3_HOLD_H
#define LIGI_S3_HOLD_H

#include "backend/s3/leases/s3_lease.h"
#include "backend/s3/s3.h"

typedef struct ligi_s3_hold {
    ligi_s3 *s3;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint8_t token[LIGI_RECORD_ID_BYTES];
    pthread_mutex_t lock; /* guards what follows: renewed by a thread of the volume */
    int64_t ttl_ns;
    int64_t since_ns; /* CLOCK_BOOTTIME before the request that last wrote it */
} ligi_s3_hold;

/* LIG_E_EXISTS without an error text if another process has claimed this pack. */
lig_status ligi_s3_hold_take(ligi_s3_hold *hold, ligi_s3 *s3, uint64_t id, int64_t ttl_ns);
/* LIG_E_NOTFOUND with an error text if it is lost. */
lig_status ligi_s3_hold_renew(ligi_s3_hold *hold, int64_t ttl_ns);
/* LIG_OK if the claim is in force, without a request where this host's clock is sufficient
 * proof. */
lig_status ligi_s3_hold_check(ligi_s3_hold *hold);
/* Removes it, unless in a forked child. */
void ligi_s3_hold_end(ligi_s3_hold *hold, int forked);

#endif
