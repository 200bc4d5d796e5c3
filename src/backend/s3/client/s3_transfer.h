/* One request and its response, with retries, as executed by the client's thread. */
#ifndef LIGI_S3_TRANSFER_H
#define LIGI_S3_TRANSFER_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "backend/s3/client/s3_calls.h"
#include "backend/s3/wire/s3_answer.h"

#define LIGI_S3_ERROR_BODY_BYTES 4096

struct ligi_s3_batch;

/* The caller's, zero-initialised and filled; unchanged and in place until it has ended. What
 * pointers refer to is borrowed until then. */
typedef struct ligi_s3_transfer {
    /* the request */
    const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
    const char *key;    /* below the store's prefix; NULL: the bucket itself */
    const char *query;  /* encoded and sorted, every key with '='; NULL: none */
    const void *body;
    size_t body_bytes;
    uint64_t range_from, range_bytes; /* of a GET; 0 bytes: the whole object */
    int if_absent;                    /* If-None-Match: *, executed once: see s3_put_absent.h */
    int bulk;                         /* large: waits for one of the `connections` */
    unsigned attempts_max;            /* 0: until the deadline */
    int64_t deadline_ns;              /* ligi_now_ns */
    int64_t sign_ns; /* CLOCK_REALTIME of the signature; 0: when an attempt begins */

    /* destination of the body of a successful response: memory, in order (a NULL base skips bytes),
     * or, without it, `received`, at most received_max bytes */
    const struct iovec *into;
    size_t into_count;
    size_t received_max;

    /* the answer */
    ligi_s3_answer answer;
    char *received; /* the caller frees it; NULL if there was no body */
    size_t received_bytes;
    uint64_t filled_bytes; /* of `into` */

    void *context; /* the caller's */

    /* the client's */
    struct ligi_s3_transfer *next;
    struct ligi_s3_batch *batch;
    CURL *easy;
    struct curl_slist *headers;
    unsigned attempt;
    int64_t wake_ns;
    atomic_int cancelled;
    size_t sent_bytes, into_at;
    uint64_t into_used; /* of into[into_at] */
    size_t error_bytes;
    char error_body[LIGI_S3_ERROR_BODY_BYTES];
    char curl_error[CURL_ERROR_SIZE];
} ligi_s3_transfer;

#endif
