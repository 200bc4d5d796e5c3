/* Requests that a thread sends and waits for. `what` begins error messages ("cannot read"). All are
 * **shared** and end by `timeout_ns` from the call. */
#ifndef LIGI_S3_REQUESTS_H
#define LIGI_S3_REQUESTS_H

#include "backend/s3/client/s3_client.h"
#include "backend/s3/wire/s3_list.h"

/* A transfer with a deadline; the caller fills the rest. */
ligi_s3_transfer ligi_s3_request(const char *method, const char *key, int64_t timeout_ns);
/* The status of an ended transfer, with an error text; 404 is LIG_E_NOTFOUND without one, unless
 * the bucket itself is missing, which is LIG_E_IO. */
lig_status ligi_s3_result(ligi_s3_client *client, const ligi_s3_transfer *transfer,
                          const char *what);
/* Performs, then ligi_s3_result. */
lig_status ligi_s3_execute(ligi_s3_client *client, ligi_s3_transfer *transfer, const char *what);

typedef struct ligi_s3_small { /* the caller frees data */
    char *data;
    size_t bytes;
    int64_t age_s; /* by the server's clock: Date - Last-Modified */
} ligi_s3_small;
#define LIGI_S3_AGE_UNKNOWN INT64_MAX

/* A whole object of at most `max` bytes. LIG_E_NOTFOUND without an error text. */
lig_status ligi_s3_get(ligi_s3_client *client, const char *key, size_t max, int64_t timeout_ns,
                       ligi_s3_small *object);
lig_status ligi_s3_put(ligi_s3_client *client, const char *key, const void *data, size_t bytes,
                       int64_t timeout_ns);
/* LIG_OK also if it did not exist. */
lig_status ligi_s3_delete(ligi_s3_client *client, const char *key, int64_t timeout_ns);
/* LIG_E_NOTFOUND without an error text. */
lig_status ligi_s3_head(ligi_s3_client *client, const char *key, int64_t timeout_ns,
                        uint64_t *bytes);

typedef struct ligi_s3_listing {
    const char *folder;       /* keys that begin with this: "cat/" */
    const char *after;        /* keys after this one; NULL: all */
    unsigned page;            /* maximum number per request, at most 1000 */
    int uploads;              /* multipart uploads instead of objects */
    ligi_s3_list_visit visit; /* with keys below the store's prefix */
    void *context;
} ligi_s3_listing;
/* Visits items in order of their keys until there are no more or visit returns non-zero. */
lig_status ligi_s3_list(ligi_s3_client *client, const ligi_s3_listing *listing, int64_t timeout_ns);

#endif
