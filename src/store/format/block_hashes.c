#include "store/format/block_hashes.h"

#include "base/hash.h"
#include "base/threads/team.h"

#include <stdatomic.h>

/* Less than this is hashed before a thread has begun. */
#define ALONE_BYTES (UINT64_C(4) << 20)

typedef struct gang {
    const void *secret;
    const ligi_hash_job *jobs;
    size_t count;
    atomic_size_t next;
} gang;

static void hash_one(const void *secret, const ligi_hash_job *job)
{
    for (uint64_t at = 0; at < job->bytes; at += LIG_BLOCK_BYTES) {
        uint64_t left = job->bytes - at;
        uint64_t bytes = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
        job->hashes[at / LIG_BLOCK_BYTES] = ligi_hash64(secret, job->data + at, bytes);
    }
}

/* Of each thread: there may be many small jobs. */
static lig_status work(void *context, size_t part, unsigned member)
{
    gang *self = context;
    (void)part, (void)member;
    for (size_t i; (i = atomic_fetch_add(&self->next, 1)) < self->count;)
        hash_one(self->secret, &self->jobs[i]);
    return LIG_OK;
}

void ligi_hash_jobs(const void *secret, const ligi_hash_job *jobs, size_t count)
{
    gang self = {.secret = secret, .jobs = jobs, .count = count};
    uint64_t bytes = 0;
    for (size_t i = 0; i < count && bytes < ALONE_BYTES; i++)
        bytes += jobs[i].bytes;
    unsigned threads = bytes < ALONE_BYTES || count < 2 ? 1 : 2;
    (void)ligi_team_once(threads, work, &self, threads);
}
