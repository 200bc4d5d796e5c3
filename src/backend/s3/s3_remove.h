/* Listing and removing objects, and leftovers of dead writers. See storage_engine.h. */
#ifndef LIGI_S3_REMOVE_H
#define LIGI_S3_REMOVE_H

#include "backend/s3/s3.h"

lig_status ligi_s3_object_list(void *self, ligi_object_kind kind, uint64_t after, uint64_t *ids,
                               size_t capacity, size_t *count);
lig_status ligi_s3_object_remove(void *self, ligi_object_kind kind, const uint64_t *ids,
                                 size_t count, lig_status *results);
lig_status ligi_s3_pack_held(void *self, uint64_t id);
lig_status ligi_s3_drafts_remove(void *self, int *more);

#endif
