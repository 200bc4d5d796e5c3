/* Interprets a server's response: done, retry, or a failure with an error text. Pure. */
#ifndef LIGI_S3_ANSWER_H
#define LIGI_S3_ANSWER_H

#include "backend/remote/format/numbered_commit.h"
#include "backend/remote/storage_engine.h"

/* How a transfer ended, apart from HTTP. */
typedef enum ligi_s3_link {
    LIGI_S3_LINK_OK,        /* there is an HTTP answer, complete */
    LIGI_S3_LINK_UNSENT,    /* no connection: the server has not seen the request */
    LIGI_S3_LINK_LOST,      /* reset, truncated or timed out: the server may have executed it */
    LIGI_S3_LINK_UNTRUSTED, /* the certificate does not verify */
    LIGI_S3_LINK_MALFORMED, /* the response is not HTTP, or longer than requested */
    LIGI_S3_LINK_REFUSED    /* the request was not sent: it does not fit, or memory is exhausted */
} ligi_s3_link;

typedef struct ligi_s3_answer {
    ligi_s3_link link;
    int http;             /* status code; 0 without an answer */
    char code[64];        /* of an error: "NoSuchKey" */
    char message[256];    /* of the error, or of the connection */
    char region[64];      /* the bucket's region, if the response contains it */
    char etag[80];        /* as sent, with its quotes */
    int64_t date_s;       /* the server's clock, since 1970; 0 if unknown */
    int64_t modified_s;   /* of the object */
    uint64_t total_bytes; /* size of the object, from Content-Range or Content-Length */
    int64_t retry_after_s;
} ligi_s3_answer;

typedef enum ligi_s3_verdict {
    LIGI_S3_DONE,
    LIGI_S3_RETRY, /* later; the request is idempotent */
    LIGI_S3_FAILED
} ligi_s3_verdict;

/* For requests that may be repeated at will: everything but conditional PUTs. */
ligi_s3_verdict ligi_s3_answer_verdict(const ligi_s3_answer *answer);

/* For a PUT with If-None-Match: *, which is never repeated blindly (numbered_commit.h). */
ligi_commit_reply ligi_s3_answer_put_reply(const ligi_s3_answer *answer);

/* Reads code, message and region from the XML of an error; leaves them empty if it is malformed. */
void ligi_s3_answer_parse_error(ligi_s3_answer *answer, const char *body, size_t bytes);

/* Reports the failure: the operation ("cannot read"), object and bucket, the reason and what to do.
 * Never contains keys of the account or signatures. */
typedef struct ligi_s3_subject {
    const char *what, *bucket, *key, *endpoint;
    const char *region; /* that requests were signed for */
    int anonymous;      /* no credentials were given */
} ligi_s3_subject;
lig_status ligi_s3_answer_fail(const ligi_engine_host *host, const ligi_s3_answer *answer,
                               const ligi_s3_subject *subject);

/* The pause before attempt number `attempt` (1: the first repetition): exponential, with jitter
 * from `random`, between 1/2 and 1 of min(20 s, 50 ms * 2^(attempt-1)); at least what the server
 * asked for, up to 20 s. */
int64_t ligi_s3_answer_pause_ns(const ligi_s3_answer *answer, unsigned attempt, uint64_t random);

#endif
