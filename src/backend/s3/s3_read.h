/* Reading objects: ranges that lie close together are one request, several of which are in
 * flight. */
#ifndef LIGI_S3_READ_H
#define LIGI_S3_READ_H

#include "backend/s3/s3.h"

#define LIGI_S3_RANGE_BYTES (UINT64_C(8) << 20) /* of one request */

lig_status ligi_s3_object_size(void *self, ligi_object object, uint64_t *bytes);
lig_status ligi_s3_object_read(void *self, ligi_object object, const ligi_object_range *ranges,
                               size_t count, ligi_object_arrived arrived, void *context);

/* One request: bytes [from, from + bytes) of the object, into `parts` (a NULL base skips a gap). */
typedef struct ligi_s3_fetch {
    uint64_t from, bytes;
    size_t part, part_count;   /* of the plan's parts */
    size_t range, range_count; /* the ranges that it fills, completely or in part */
} ligi_s3_fetch;

typedef struct ligi_s3_plan {
    ligi_s3_fetch *fetches;
    size_t fetch_count, fetch_capacity;
    struct iovec *parts;
    size_t part_count, part_capacity;
} ligi_s3_plan;

/* Plans the requests that fill the ranges, which ascend and do not overlap. Pure. 0 if memory is
 * exhausted. */
int ligi_s3_plan_make(const ligi_object_range *ranges, size_t count, ligi_s3_plan *plan);
void ligi_s3_plan_fini(ligi_s3_plan *plan);

#endif
