/* The log of commits as numbered objects, and checkpoints. See storage_engine.h. */
#ifndef LIGI_S3_LOG_H
#define LIGI_S3_LOG_H

#include "backend/s3/s3.h"

#define LIGI_S3_RECORD_BYTES_MAX (UINT64_C(64) << 20)

lig_status ligi_s3_log_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                              const void *record, size_t bytes);
lig_status ligi_s3_log_read(void *self, const ligi_log_end *end, int64_t fresh_ns,
                            ligi_log_visit visit, void *context);
lig_status ligi_s3_log_wait(void *self, uint64_t since, int64_t timeout_ns);
lig_status ligi_s3_log_trim(void *self, uint64_t before, int64_t keep_ns);
lig_status ligi_s3_checkpoint_publish(void *self, uint64_t version);
lig_status ligi_s3_checkpoint_newest(void *self, uint64_t before, uint64_t *version);

#endif
