#include "store/serve/client/client_need.h"

#include "base/error.h"
#include "store/format/block_hashes.h"
#include "store/serve/message/served_save.h"

#include <stdlib.h>

#define BUFFER_BYTES (UINT64_C(4) << 20)
enum { PIECES = 256 };

/* A server requests only tensors of the plan; any other request is rejected before it is read. */
static lig_status check_stretch(const ligi_client_saving *saving,
                                const ligi_served_stretch *stretch)
{
    const ligi_plan *plan = saving->plan;
    if (stretch->tensor < plan->count && plan->slots[stretch->tensor].tied == SIZE_MAX) {
        uint64_t bytes = plan->tensors[stretch->tensor].bytes;
        if (stretch->offset <= bytes && stretch->bytes <= bytes - stretch->offset)
            return LIG_OK;
    }
    return lig_fail(
        LIG_E_CORRUPT, "protocol error: %s requested %llu bytes at %llu of tensor %llu of '%s'",
        saving->client->uri, (unsigned long long)stretch->bytes,
        (unsigned long long)stretch->offset, (unsigned long long)stretch->tensor, plan->about.name);
}

/* A tensor of a save in parts may not have been offered yet. */
static lig_status wait_tensors(const ligi_client_saving *saving, const ligi_served_need *need)
{
    const ligi_source *source = saving->source;
    for (size_t i = 0; i < need->count; i++) {
        LIG_TRY(check_stretch(saving, &need->stretches[i]));
        if (source->wait)
            LIG_TRY(source->wait(source->context, need->stretches[i].tensor));
    }
    return LIG_OK;
}

static const lig_tensor *tensor_of(const ligi_client_saving *saving,
                                   const ligi_served_stretch *stretch)
{
    return &saving->plan->tensors[stretch->tensor];
}

static lig_status send_data(const ligi_client_saving *saving, const ligi_served_need *need,
                            const struct iovec *data, size_t count)
{
    ligi_writer tag = {0};
    ligi_served_number_put(&tag, need->tag);
    lig_status status = tag.status;
    if (status == LIG_OK)
        status =
            ligi_client_tell(saving->client, saving->call, LIGI_SERVED_DATA, &tag, data, count);
    ligi_writer_fini(&tag);
    return status;
}

/* --- bytes --- */

/* Contiguous host memory is sent without a copy. */
static int all_flat(const ligi_client_saving *saving, const ligi_served_need *need)
{
    for (size_t i = 0; i < need->count; i++)
        if (!ligi_source_flat(saving->source, tensor_of(saving, &need->stretches[i])))
            return 0;
    return need->count <= PIECES;
}

static lig_status send_flat(const ligi_client_saving *saving, const ligi_served_need *need)
{
    struct iovec data[PIECES];
    for (size_t i = 0; i < need->count; i++) {
        const ligi_served_stretch *stretch = &need->stretches[i];
        data[i] = (struct iovec){(uint8_t *)tensor_of(saving, stretch)->data + stretch->offset,
                                 stretch->bytes};
    }
    return send_data(saving, need, data, need->count);
}

static lig_status send_filled(const ligi_client_saving *saving, const ligi_served_need *need)
{
    uint8_t *buffer;
    uint64_t at = 0;
    LIG_TRY(ligi_alloc(&buffer, need->data_bytes, "a buffer"));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < need->count && status == LIG_OK; i++) {
        const ligi_served_stretch *stretch = &need->stretches[i];
        const ligi_stretch fill = {stretch->offset, stretch->bytes, buffer + at};
        status = ligi_source_fill(saving->source, saving->plan, stretch->tensor, &fill);
        at += stretch->bytes;
    }
    if (status == LIG_OK)
        status = send_data(saving, need, &(struct iovec){buffer, need->data_bytes}, 1);
    free(buffer);
    return status;
}

/* --- hashes --- */

static uint64_t block_count(uint64_t bytes)
{
    return (bytes + LIG_BLOCK_BYTES - 1) / LIG_BLOCK_BYTES;
}

static lig_status hash_stretch(const ligi_client_saving *saving, const ligi_served_stretch *stretch,
                               uint8_t **buffer, uint64_t *hashes)
{
    const lig_tensor *tensor = tensor_of(saving, stretch);
    if (ligi_source_flat(saving->source, tensor)) {
        const ligi_hash_job job = {(const uint8_t *)tensor->data + stretch->offset, stretch->bytes,
                                   hashes};
        ligi_hash_jobs(saving->secret, &job, 1);
        return LIG_OK;
    }
    if (*buffer == NULL)
        LIG_TRY(ligi_alloc(buffer, BUFFER_BYTES, "a buffer"));
    for (uint64_t at = 0; at < stretch->bytes; at += BUFFER_BYTES) {
        uint64_t left = stretch->bytes - at, bytes = left < BUFFER_BYTES ? left : BUFFER_BYTES;
        const ligi_stretch fill = {stretch->offset + at, bytes, *buffer};
        const ligi_hash_job job = {*buffer, bytes, hashes + at / LIG_BLOCK_BYTES};
        LIG_TRY(ligi_source_fill(saving->source, saving->plan, stretch->tensor, &fill));
        ligi_hash_jobs(saving->secret, &job, 1);
    }
    return LIG_OK;
}

static lig_status send_hashes(const ligi_client_saving *saving, const ligi_served_need *need)
{
    uint64_t *hashes, at = 0;
    uint8_t *buffer = NULL;
    LIG_TRY(ligi_alloc(&hashes, need->data_bytes, "checksums"));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < need->count && status == LIG_OK; i++) {
        status = hash_stretch(saving, &need->stretches[i], &buffer, hashes + at);
        at += block_count(need->stretches[i].bytes);
    }
    if (status == LIG_OK)
        status = send_data(saving, need, &(struct iovec){hashes, need->data_bytes}, 1);
    free(buffer);
    free(hashes);
    return status;
}

lig_status ligi_client_answer(const ligi_client_saving *saving, const ligi_client_message *message)
{
    ligi_served_need need = {0};
    lig_status status = ligi_served_need_get(message->body, message->bytes, &need);
    if (status == LIG_OK)
        status = wait_tensors(saving, &need);
    if (status == LIG_OK && need.kind == LIGI_SERVED_NEED_HASHES)
        status = send_hashes(saving, &need);
    else if (status == LIG_OK)
        status = all_flat(saving, &need) ? send_flat(saving, &need) : send_filled(saving, &need);
    ligi_served_need_fini(&need);
    return status;
}
