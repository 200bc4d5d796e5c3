/* Hashes of many blocks, on two threads if there is enough work. */
#ifndef LIGI_BLOCK_HASHES_H
#define LIGI_BLOCK_HASHES_H

#include <ligament/backend.h>

typedef struct ligi_hash_job {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t *hashes; /* one for each block of LIG_BLOCK_BYTES; filled */
} ligi_hash_job;

void ligi_hash_jobs(const void *secret, const ligi_hash_job *jobs, size_t count);

#endif
