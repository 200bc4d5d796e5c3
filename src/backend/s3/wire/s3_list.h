/* Responses to lists of objects and of multipart uploads, and to the start and end of an upload.
 * Pure. */
#ifndef LIGI_S3_LIST_H
#define LIGI_S3_LIST_H

#include <ligament/base.h>

#include "backend/s3/wire/s3_place.h"

#define LIGI_S3_UPLOAD_BYTES 512 /* of an upload's id, with a NUL */

typedef struct ligi_s3_list_item {
    char key[LIGI_S3_KEY_BYTES];
    char upload[LIGI_S3_UPLOAD_BYTES]; /* of uploads only */
    int64_t date_s; /* last modified, or when the upload was started; since 1970; 0 if unknown */
    uint64_t bytes;
} ligi_s3_list_item;

/* A non-zero result ends the visit. `item` is borrowed for the call. */
typedef int (*ligi_s3_list_visit)(void *context, const ligi_s3_list_item *item);

/* ListObjectsV2 and ListMultipartUploads. *truncated: there are more. 0 if the response is
 * malformed: items before the malformed part have been visited. */
int ligi_s3_list_parse(const char *body, size_t bytes, ligi_s3_list_visit visit, void *context,
                       int *truncated);
/* The id of an upload that was started; 0 if the response has none. */
int ligi_s3_upload_parse(const char *body, size_t bytes, char upload[LIGI_S3_UPLOAD_BYTES]);
/* 1 if the answer to a completed upload says that it succeeded. Servers send "200 OK" early, to
 * keep the connection open, and report failures in the body. */
int ligi_s3_complete_parse(const char *body, size_t bytes);
/* "2009-10-12T17:50:30.000Z", or "Wed, 12 Oct 2009 17:50:30 GMT" as in headers; 0 if it is
 * neither. */
int64_t ligi_s3_date_parse(const char *text);

#endif
