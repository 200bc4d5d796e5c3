/* Objects with a time to live: claims of writers (hold/), pins and locks. An object is in force for
 * `ttl_ns` after it was last written, by the server's clock: its age is Date - Last-Modified of the
 * same response. */
#ifndef LIGI_S3_LEASE_H
#define LIGI_S3_LEASE_H

#include "backend/remote/storage_engine.h"
#include "backend/s3/client/s3_requests.h"

#define LIGI_S3_LEASE_HEADER_BYTES (LIGI_RECORD_ID_BYTES + 8)
#define LIGI_S3_LEASE_BYTES_MAX (UINT64_C(8) << 20)

typedef struct ligi_s3_lease {
    uint8_t token[LIGI_RECORD_ID_BYTES]; /* of the holder */
    int64_t ttl_ns;
    int64_t age_s; /* when it was read */
    const uint8_t *rest;
    size_t rest_bytes;
} ligi_s3_lease;

void ligi_s3_lease_encode(const uint8_t token[LIGI_RECORD_ID_BYTES], int64_t ttl_ns,
                          uint8_t out[LIGI_S3_LEASE_HEADER_BYTES]);
/* 0 if it is malformed. `object` is borrowed. */
int ligi_s3_lease_decode(const ligi_s3_small *object, ligi_s3_lease *lease);
/* In force, or undecidable: ages are in whole seconds, and in case of doubt the object is in
 * force. */
int ligi_s3_lease_lives(const ligi_s3_lease *lease);
/* Expired so long ago that its leftovers may be removed: twice its time to live. */
int ligi_s3_lease_stale(const ligi_s3_lease *lease);

#endif
