/* A multipart upload: started, fed with parts, completed or aborted. Used by one thread. */
#ifndef LIGI_S3_UPLOAD_H
#define LIGI_S3_UPLOAD_H

#include "backend/s3/s3.h"
#include "backend/s3/wire/s3_list.h"

#define LIGI_S3_ETAG_BYTES 80
#define LIGI_S3_PARTS_MAX 10000

typedef struct ligi_s3_upload {
    ligi_s3 *s3;
    const char *key;                   /* borrowed */
    char id[LIGI_S3_UPLOAD_BYTES];     /* "": not started */
    char (*etags)[LIGI_S3_ETAG_BYTES]; /* of parts, from number 1 at index 0 */
    size_t etag_capacity, part_count;
} ligi_s3_upload;

lig_status ligi_s3_upload_start(ligi_s3_upload *upload);
/* Room for the ETag of part `number`. */
lig_status ligi_s3_upload_reserve(ligi_s3_upload *upload, size_t number);
/* The query of a part's PUT. */
void ligi_s3_upload_query(const ligi_s3_upload *upload, size_t number, char *query, size_t bytes);
/* All parts have arrived; `bytes` is the size of the object. */
lig_status ligi_s3_upload_complete(ligi_s3_upload *upload, uint64_t bytes);
/* Discards the parts on the server, if it was started. */
void ligi_s3_upload_abort(ligi_s3_upload *upload);
void ligi_s3_upload_fini(ligi_s3_upload *upload);
/* Aborts an upload by its id. LIG_OK also if it does not exist. */
lig_status ligi_s3_upload_discard(ligi_s3 *s3, const char *key, const char *id);

#endif
