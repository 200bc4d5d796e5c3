/* Writing objects: parts of a multipart upload, several in flight; small objects by one PUT. */
#ifndef LIGI_S3_WRITER_H
#define LIGI_S3_WRITER_H

#include "backend/s3/s3.h"

lig_status ligi_s3_object_create(void *self, ligi_object object, uint64_t bytes, int64_t ttl_ns,
                                 void **writer);
lig_status ligi_s3_object_room(void *writer, void **memory, uint64_t *bytes);
lig_status ligi_s3_object_push(void *writer, uint64_t bytes);
lig_status ligi_s3_object_seal(void *writer);
lig_status ligi_s3_object_renew(void *writer, int64_t ttl_ns);
void ligi_s3_object_close(void *writer, int forked);

/* The size of part number `index` (from 0): S3 allows 10,000 parts, so later ones are larger.
 * Pure. */
uint64_t ligi_s3_part_bytes(unsigned index);

#endif
