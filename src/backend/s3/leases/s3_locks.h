/* Locks by name: lock/<name>/<n>, where the highest n is the holder. An expired lock is taken over
 * by writing n + 1 if absent, never by removing n: a process that was suspended after it saw that n
 * had expired would remove its successor's. */
#ifndef LIGI_S3_LOCKS_H
#define LIGI_S3_LOCKS_H

#include "backend/s3/s3.h"

lig_status ligi_s3_lock(void *self, const char *name, const char *holder, int64_t ttl_ns,
                        void **lock);
lig_status ligi_s3_lock_renew(void *lock, int64_t ttl_ns);
void ligi_s3_unlock(void *lock, int forked);

#endif
