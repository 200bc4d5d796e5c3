#include "tensor/copy_team.h"

#include "base/error.h"
#include "tensor/staging.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define ALONE_BYTES (UINT64_C(16) << 20) /* smaller copies end before a thread has started */
#define PIECE_BYTES (UINT64_C(8) << 20)  /* what a thread takes at a time */
#define TEAM_MAX 8

typedef struct work {
    uint8_t *host, *data;
    uint64_t bytes;
    uint16_t memory;
    int32_t device;
    int to_host;
    atomic_uint_fast64_t next; /* start of the first piece that no thread has taken */
    atomic_int failed;
} work;

typedef struct member {
    work *shared;
    pthread_t thread;
    int started;
    ligi_failure failure;
} member;

static lig_status piece_to_host(const work *self, uint64_t at, uint64_t bytes)
{
    ligi_drain drain;
    const uint8_t *from;
    uint64_t done = 0, part = 1;
    ligi_drain_begin(&drain, self->data + at, bytes, self->memory, self->device);
    lig_status status = LIG_OK;
    while (status == LIG_OK && done < bytes) {
        status = ligi_drain_next(&drain, bytes, &from, &part);
        if (status == LIG_OK)
            memcpy(self->host + at + done, from, part);
        done += part;
    }
    ligi_drain_end(&drain);
    return status;
}

static lig_status copy_piece(const work *self, uint64_t at)
{
    uint64_t left = self->bytes - at, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    return self->to_host ? piece_to_host(self, at, bytes)
                         : ligi_staging_push(self->data + at, self->host + at, bytes, self->memory,
                                             self->device);
}

static lig_status copy_pieces(work *self)
{
    uint64_t at;
    while (!atomic_load(&self->failed) &&
           (at = atomic_fetch_add(&self->next, PIECE_BYTES)) < self->bytes) {
        lig_status status = copy_piece(self, at);
        if (status == LIG_OK)
            continue;
        atomic_store(&self->failed, 1);
        return status;
    }
    return LIG_OK;
}

static void *member_main(void *context)
{
    member *self = context;
    ligi_failure_take(&self->failure, copy_pieces(self->shared));
    return NULL;
}

/* If a thread cannot be started, the copy is only slower. */
static void member_start(member *self, work *shared)
{
    sigset_t all, before;
    self->shared = shared;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->started = pthread_create(&self->thread, NULL, member_main, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The number of threads besides the caller's. */
static size_t team_size(uint64_t bytes)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (bytes < ALONE_BYTES || processors < 2)
        return 0;
    return (processors < TEAM_MAX ? (size_t)processors : TEAM_MAX) - 1;
}

static lig_status run(work *self)
{
    member others[TEAM_MAX - 1] = {{.started = 0}};
    size_t count = team_size(self->bytes);
    for (size_t i = 0; i < count; i++)
        member_start(&others[i], self);
    lig_status status = copy_pieces(self);
    for (size_t i = 0; i < count; i++) {
        if (!others[i].started)
            continue;
        pthread_join(others[i].thread, NULL);
        if (status == LIG_OK && others[i].failure.status != LIG_OK)
            status = ligi_failure_publish(&others[i].failure);
    }
    return status;
}

lig_status ligi_copy_to_host(void *host, const void *data, uint64_t bytes, uint16_t memory,
                             int32_t device)
{
    work self = {.host = host,
                 .data = (uint8_t *)(uintptr_t)data,
                 .bytes = bytes,
                 .memory = memory,
                 .device = device,
                 .to_host = 1};
    return run(&self);
}

/* Copies queued before a failure still read the ring and write the caller's memory. */
lig_status ligi_copy_from_host(void *data, const void *host, uint64_t bytes, uint16_t memory,
                               int32_t device)
{
    work self = {.host = (uint8_t *)(uintptr_t)host,
                 .data = data,
                 .bytes = bytes,
                 .memory = memory,
                 .device = device};
    ligi_failure failure;
    ligi_failure_take(&failure, run(&self));
    lig_status status = ligi_staging_finish(memory, device);
    return failure.status == LIG_OK ? status : ligi_failure_publish(&failure);
}
