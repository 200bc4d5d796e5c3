/* Put-if-absent of one object that tolerates lost responses: numbered_commit.h with real
 * requests. */
#ifndef LIGI_S3_PUT_ABSENT_H
#define LIGI_S3_PUT_ABSENT_H

#include "backend/s3/client/s3_client.h"

typedef struct ligi_s3_absent {
    const char *key;
    const void *data; /* its first LIGI_RECORD_ID_BYTES are unique to this object */
    size_t bytes;
    int64_t seen_ns, fresh_ns; /* the fence of log_append; fresh_ns 0: none */
    int64_t timeout_ns;
    int removable;     /* only other writers' objects may disappear */
    int unconditional; /* the only writer (writer=single): check, then write */
} ligi_s3_absent;

/* LIG_E_BUSY without an error text: another object exists, or the fence has closed. LIG_E_IO: the
 * outcome is unknown. Any other failure: nothing was or will be written. */
lig_status ligi_s3_put_absent(ligi_s3_client *client, const ligi_s3_absent *object);

#endif
