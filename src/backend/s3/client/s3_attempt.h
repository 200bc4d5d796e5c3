/* One attempt of a transfer: its URL, signature and libcurl options, and its result. */
#ifndef LIGI_S3_ATTEMPT_H
#define LIGI_S3_ATTEMPT_H

#include "backend/s3/client/s3_transfer.h"
#include "backend/s3/wire/s3_place.h"
#include "backend/s3/wire/s3_sign.h"

typedef struct ligi_s3_keys {
    char access_key[132], secret_key[260], token[2200]; /* empty: none */
} ligi_s3_keys;

/* The parts of the client that attempts need. */
typedef struct ligi_s3_setting {
    const ligi_s3_calls *calls;
    ligi_s3_digest digest;
    ligi_s3_place place;
    char ca[1024], proxy[512]; /* empty: the system's authorities; no proxy */
    int64_t connect_ns, stall_ns;
} ligi_s3_setting;

/* Prepares transfer->easy, which exists. `date_ns` is CLOCK_REALTIME. `keys` without an access key:
 * the request is not signed. 0 if it does not fit S3's limits or memory is exhausted;
 * transfer->answer contains the reason. */
int ligi_s3_attempt_prepare(const ligi_s3_setting *setting, const ligi_s3_keys *keys,
                            ligi_s3_transfer *transfer, int64_t date_ns);
/* Fills transfer->answer from libcurl's result, and frees what prepare allocated. */
void ligi_s3_attempt_finish(const ligi_s3_setting *setting, ligi_s3_transfer *transfer,
                            CURLcode code);

#endif
