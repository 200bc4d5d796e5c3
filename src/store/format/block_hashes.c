#include "store/format/block_hashes.h"

#include "base/hash.h"

#include <pthread.h>
#include <signal.h>
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

static void *work(void *context)
{
    gang *self = context;
    for (size_t i; (i = atomic_fetch_add(&self->next, 1)) < self->count;)
        hash_one(self->secret, &self->jobs[i]);
    return NULL;
}

void ligi_hash_jobs(const void *secret, const ligi_hash_job *jobs, size_t count)
{
    gang self = {.secret = secret, .jobs = jobs, .count = count};
    uint64_t bytes = 0;
    for (size_t i = 0; i < count && bytes < ALONE_BYTES; i++)
        bytes += jobs[i].bytes;
    pthread_t other;
    int shared = 0;
    if (bytes >= ALONE_BYTES && count > 1) { /* without a second thread it only takes longer */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        shared = pthread_create(&other, NULL, work, &self) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    work(&self);
    if (shared)
        pthread_join(other, NULL);
}
