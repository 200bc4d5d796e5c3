#include "store/load/verify_checksums.h"

#include "base/error.h"
#include "store/format/block_hashes.h"

#include <stdlib.h>

#define JOB_BYTES (UINT64_C(2) << 20) /* what a thread takes at a time */

typedef struct verification {
    const ligi_manifest *manifest;
    ligi_hash_job *jobs;
    uint64_t *hashes; /* of all verified tensors, in order */
} verification;

static uint64_t pieces(uint64_t bytes, uint64_t piece)
{
    return (bytes + piece - 1) / piece;
}

/* A tied tensor shares its bytes with another, and is verified there. */
static uint64_t bytes_of(const lig_stored_tensor *stored)
{
    return stored->tied >= 0 ? 0 : stored->tensor.bytes;
}

static lig_status prepare(verification *self)
{
    uint64_t jobs = 0, hashes = 0;
    for (size_t i = 0; i < self->manifest->tensor_count; i++) {
        jobs += pieces(bytes_of(&self->manifest->tensors[i]), JOB_BYTES);
        hashes += pieces(bytes_of(&self->manifest->tensors[i]), LIG_BLOCK_BYTES);
    }
    LIG_TRY(ligi_calloc(&self->jobs, jobs + 1, sizeof *self->jobs, "checksums"));
    return ligi_calloc(&self->hashes, hashes + 1, sizeof *self->hashes, "checksums");
}

static void run(verification *self, const void *secret)
{
    size_t count = 0;
    uint64_t *hashes = self->hashes;
    for (size_t i = 0; i < self->manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &self->manifest->tensors[i];
        for (uint64_t at = 0; at < bytes_of(stored); at += JOB_BYTES) {
            uint64_t left = stored->tensor.bytes - at, bytes = left < JOB_BYTES ? left : JOB_BYTES;
            self->jobs[count++] =
                (ligi_hash_job){(const uint8_t *)stored->tensor.data + at, bytes, hashes};
            hashes += pieces(bytes, LIG_BLOCK_BYTES);
        }
    }
    ligi_hash_jobs(secret, self->jobs, count);
}

static lig_status compare(const verification *self)
{
    const uint64_t *hashes = self->hashes;
    for (size_t i = 0; i < self->manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &self->manifest->tensors[i];
        uint64_t count = pieces(bytes_of(stored), LIG_BLOCK_BYTES);
        for (uint64_t k = 0; k < count; k++)
            if (hashes[k] != self->manifest->hashes[i][k])
                return lig_fail(LIG_E_CORRUPT, "checksum mismatch in tensor '%s' in pack %016llx",
                                stored->tensor.name, (unsigned long long)stored->pack);
        hashes += count;
    }
    return LIG_OK;
}

lig_status ligi_verify_placed(const ligi_model *model, const void *secret)
{
    verification self = {.manifest = &model->manifest};
    lig_status status = prepare(&self);
    if (status == LIG_OK) {
        run(&self, secret);
        status = compare(&self);
    }
    free(self.jobs);
    free(self.hashes);
    return status;
}
