/* Where a bucket is: scheme, host and path of its requests. Pure. */
#ifndef LIGI_S3_PLACE_H
#define LIGI_S3_PLACE_H

#include "backend/remote/storage_engine.h"

#define LIGI_S3_KEY_BYTES 1025 /* of S3's keys, with a NUL */
#define LIGI_S3_HOST_BYTES 320
#define LIGI_S3_PATH_BYTES 3400 /* a key, percent-encoded, with a bucket before it */

typedef struct ligi_s3_place {
    char bucket[64];
    char prefix[512]; /* of keys: "" or ends with a slash */
    char region[64];
    char host[LIGI_S3_HOST_BYTES]; /* of the Host header: with a port that is not the default */
    int tls;
    int bucket_in_host; /* bucket.host/key; otherwise host/bucket/key */
} ligi_s3_place;

/* Options of a URI; each may be NULL. */
typedef struct ligi_s3_place_options {
    const char *endpoint;   /* "https://host[:port]", "http://..."; a plain host means https */
    const char *region;     /* default "us-east-1" */
    const char *addressing; /* "path", "host" or NULL: host at Amazon, path at other endpoints */
} ligi_s3_place_options;

/* `rest` is the URI without "s3:": "//bucket/prefix". LIG_E_INVALID with a text. */
lig_status ligi_s3_place_parse(const ligi_engine_host *host, const char *rest,
                               const ligi_s3_place_options *options, ligi_s3_place *place);
/* The encoded path of a key below the prefix; the bucket itself if `key` is NULL. 0 if it does not
 * fit. */
int ligi_s3_place_path(const ligi_s3_place *place, const char *key, char *path, size_t path_bytes);

#endif
