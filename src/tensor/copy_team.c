#include "tensor/copy_team.h"

#include "base/error.h"
#include "base/threads/team.h"
#include "tensor/staging.h"

#include <string.h>

#define ALONE_BYTES (UINT64_C(16) << 20) /* smaller copies end before a thread has started */
#define PIECE_BYTES (UINT64_C(8) << 20)  /* what a thread takes at a time */

typedef struct work {
    uint8_t *host, *data;
    uint64_t bytes;
    uint16_t memory;
    int32_t device;
    int to_host;
} work;

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

static lig_status copy_piece(void *context, size_t piece, unsigned member)
{
    const work *self = context;
    uint64_t at = piece * PIECE_BYTES, left = self->bytes - at;
    uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    (void)member;
    return self->to_host ? piece_to_host(self, at, bytes)
                         : ligi_staging_push(self->data + at, self->host + at, bytes, self->memory,
                                             self->device);
}

static lig_status run(work *self)
{
    return ligi_team_once(self->bytes < ALONE_BYTES ? 1 : 0, copy_piece, self,
                          (self->bytes + PIECE_BYTES - 1) / PIECE_BYTES);
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
