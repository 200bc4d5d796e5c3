#include "mesh/receive_buffers.h"

#include "mesh/mesh.h"

/* The lent piece that is exactly this tensor, or NULL. `at` advances through the pieces. */
static ligi_piece *lent_piece(const ligi_arrival *arrival, uint64_t offset, uint64_t bytes,
                              size_t *at)
{
    while (*at < arrival->piece_count && arrival->pieces[*at].offset < offset)
        ++*at;
    if (*at == arrival->piece_count || bytes == 0)
        return NULL;
    ligi_piece *piece = &arrival->pieces[*at];
    /* User code may work in place: read-only memory is copied. */
    int fits = piece->offset == offset && piece->bytes == bytes && piece->shared;
    return fits && !piece->read_only ? piece : NULL;
}

lig_status ligi_mesh_receive_size(ligi_queue *queue, ligi_job *job, const ligi_arrival *arrival,
                                  uint64_t *bytes)
{
    uint64_t offset = 0;
    size_t piece_at = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < job->push_count; i++) {
        lig_tensor *tensor = &job->pieces.tensors[i];
        ligi_registered_buffer *buffer = ligi_registered_find(&queue->places, job->pieces.keys[i]);
        LIG_TRY(ligi_registered_fits(buffer, tensor->bytes));
        if (buffer && !buffer->holder && !buffer->parked && buffer->claim != job->number)
            buffer->claim = job->number; /* a second tensor with the same key would have to wait */
        else if (buffer || !lent_piece(arrival, offset, tensor->bytes, &piece_at))
            *bytes += ligi_block_aligned(tensor->bytes);
        offset += tensor->bytes;
    }
    return LIG_OK;
}

static void use_registered(ligi_job *job, uint32_t i, ligi_registered_buffer *buffer, uint8_t **at)
{
    lig_tensor *tensor = &job->pieces.tensors[i];
    job->places[i] = buffer;
    if (buffer->holder == NULL && buffer->parked == 0) {
        buffer->holder = job;
        tensor->data = buffer->data;
        return;
    }
    tensor->data = *at;
    *at += ligi_block_aligned(tensor->bytes);
    buffer->parked++;
    job->parked++;
}

lig_status ligi_mesh_receive_place(lig_mesh *mesh, ligi_job *job, const ligi_arrival *arrival,
                                   ligi_landing *landing)
{
    ligi_queue *queue = &mesh->inbox.queues[job->worker];
    uint8_t *at = job->block->data;
    uint64_t offset = 0;
    size_t piece_at = 0;
    for (uint32_t i = 0; i < job->push_count; i++) {
        lig_tensor *tensor = &job->pieces.tensors[i];
        ligi_registered_buffer *buffer = ligi_registered_find(&queue->places, job->pieces.keys[i]);
        ligi_piece *piece = buffer ? NULL : lent_piece(arrival, offset, tensor->bytes, &piece_at);
        offset += tensor->bytes;
        if (piece) {
            LIG_TRY(ligi_block_lend(job->block, piece->mapping));
            piece->taken = 1;
            mesh->stats.bytes_shared += tensor->bytes;
            tensor->data = piece->shared;
            continue;
        }
        if (buffer) {
            use_registered(job, i, buffer, &at);
        } else {
            tensor->data = at;
            at += ligi_block_aligned(tensor->bytes);
        }
        if (tensor->bytes > 0)
            job->iov[landing->count++] = (struct iovec){tensor->data, tensor->bytes};
    }
    landing->iov = job->iov;
    landing->token = job;
    return LIG_OK;
}
