/* AWS Signature Version 4 of one request. Pure: the digests are passed as functions.
 *
 * * libcurl can sign too (CURLOPT_AWS_SIGV4), but reads the clock itself when it sends, again at
 * every resend, and different releases canonicalise queries differently. A commit must be signed
 * with the same clock reading that showed its snapshot to be fresh: otherwise a writer that was
 * stopped between the two could commit after its log entry was removed. */
#ifndef LIGI_S3_SIGN_H
#define LIGI_S3_SIGN_H

#include <ligament/base.h>

#define LIGI_S3_SHA256_BYTES 32
#define LIGI_S3_SHA256_TEXT_BYTES 65
#define LIGI_S3_AUTHORIZATION_BYTES 1024
#define LIGI_S3_UNSIGNED "UNSIGNED-PAYLOAD"

typedef struct ligi_s3_bytes {
    const void *data;
    size_t bytes;
} ligi_s3_bytes;

typedef struct ligi_s3_digest { /* both return 1, or 0 if they failed */
    int (*sha256)(void *context, const void *data, size_t bytes, uint8_t out[LIGI_S3_SHA256_BYTES]);
    int (*hmac)(void *context, const ligi_s3_bytes *key, const ligi_s3_bytes *data,
                uint8_t out[LIGI_S3_SHA256_BYTES]);
    void *context;
} ligi_s3_digest;

typedef struct ligi_s3_header {
    const char *name; /* lower case */
    const char *value;
} ligi_s3_header;

typedef struct ligi_s3_signing {
    const char *method;
    const char *path;              /* encoded (ligi_s3_text_encode), as it is sent */
    const char *query;             /* encoded, sorted by key, every key with a '=' */
    const ligi_s3_header *headers; /* those that are signed, sorted by name; "host" and
                                      "x-amz-date" among them */
    size_t header_count;
    const char *payload; /* SHA-256 of the body in hexadecimal, or LIGI_S3_UNSIGNED */
    const char *access_key, *secret_key, *region;
    const char *date; /* as in x-amz-date */
} ligi_s3_signing;

/* Fills the value of the Authorization header. 0 if something does not fit or a digest failed. */
int ligi_s3_sign(const ligi_s3_digest *digest, const ligi_s3_signing *request,
                 char authorization[LIGI_S3_AUTHORIZATION_BYTES]);
/* SHA-256 in hexadecimal; 0 if the digest failed. */
int ligi_s3_sha256_text(const ligi_s3_digest *digest, const void *data, size_t bytes,
                        char text[LIGI_S3_SHA256_TEXT_BYTES]);

#endif
