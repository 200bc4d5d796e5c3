#include "mesh/mesh_respond.h"

#include "mesh/device/graph_slots.h"
#include "mesh/device/job_copies.h"
#include "mesh/mesh_server.h"

#include "group/session/session_peer.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static lig_status check_answer(const ligi_job *job, const lig_tensor *tensors, size_t count)
{
    if (count != job->pull_count)
        return lig_fail(LIG_E_MISMATCH, "worker %u pulls %u tensors, but the response has %zu",
                        job->worker, job->pull_count, count);
    for (size_t i = 0; i < count; i++) {
        const lig_tensor *asked = &job->pieces.tensors[job->push_count + i];
        uint64_t key = job->pieces.keys[job->push_count + i];
        LIG_TRY(ligi_mesh_check_tensor(&tensors[i], "answer", i));
        if (tensors[i].dtype != asked->dtype || tensors[i].bytes != asked->bytes)
            return lig_fail(LIG_E_MISMATCH,
                            "the response for key %llu of worker %u is %s of %llu bytes, but %s of "
                            "%llu bytes were requested",
                            (unsigned long long)key, job->worker, lig_dtype_name(tensors[i].dtype),
                            (unsigned long long)tensors[i].bytes, lig_dtype_name(asked->dtype),
                            (unsigned long long)asked->bytes);
    }
    return LIG_OK;
}

/* Memory for packing. */
static lig_status take_staging(ligi_queue *queue, ligi_job *job, const lig_tensor *tensors)
{
    uint64_t packed = 0;
    for (uint32_t i = 0; i < job->pull_count; i++)
        packed += lig_tensor_contiguous(&tensors[i]) ? 0 : ligi_block_aligned(tensors[i].bytes);
    return packed > 0 ? ligi_block_pool_take(queue->pool, packed, &job->staging) : LIG_OK;
}

/* Fills job->iov; non-contiguous tensors are packed. */
static void gather(ligi_job *job, const lig_tensor *tensors)
{
    uint8_t *at = job->staging ? job->staging->data : NULL;
    job->entries = 0;
    for (uint32_t i = 0; i < job->pull_count; i++) {
        void *data = tensors[i].data;
        if (!lig_tensor_contiguous(&tensors[i])) {
            lig_tensor_pack(&tensors[i], at);
            data = at;
            at += ligi_block_aligned(tensors[i].bytes);
        }
        if (tensors[i].bytes > 0)
            job->iov[job->entries++] = (struct iovec){data, tensors[i].bytes};
    }
}

static void record(lig_mesh *mesh, const ligi_job *job)
{
    if (mesh->recorder.fd < 0)
        return;
    ligi_trace_record entry = {.kind = LIG_MESH_SERVER,
                               .peer = job->worker,
                               .serial = job->serial,
                               .push_bytes = job->push_bytes,
                               .pull_bytes = job->pull_bytes};
    memcpy(&entry.stamps[2], job->stamps, sizeof job->stamps);
    ligi_trace_recorder_add(&mesh->recorder, &entry);
}

void ligi_server_job_done(lig_mesh *mesh, ligi_job *job)
{
    assert(job->state != LIGI_JOB_SENDING || mesh->answering > 0);
    mesh->answering -= job->state == LIGI_JOB_SENDING;
    ligi_server_requests_end(&mesh->inbox, job);
    ligi_mesh_ring(mesh); /* another request may be waiting for its buffer */
}

static void drop_staging(ligi_job *job)
{
    ligi_block_drop(job->staging);
    job->staging = NULL;
}

/* BUSY and NOMEM: nothing was taken. */
static lig_status post_answer(lig_mesh *mesh, ligi_job *job)
{
    ligi_party *party = &mesh->parties[job->worker];
    uint8_t head[LIGI_MESSAGE_SMALL_BYTES];
    int done = 0;
    assert(job->state >= LIGI_JOB_TAKEN);
    job->stamps[3] = ligi_mesh_stamp(mesh);
    ligi_send send = {.head = head,
                      .head_bytes =
                          ligi_message_small(LIGI_MESSAGE_REPLY, job->serial, job->stamps, head),
                      .iov = job->iov,
                      .count = job->entries,
                      .token = job};
    lig_status status = ligi_net_send(party->peer.link, &send, &done);
    if (status == LIG_E_BUSY || status == LIG_E_NOMEM)
        return status;
    mesh->stats.responses += status == LIG_OK;
    mesh->stats.bytes_pulled += status == LIG_OK ? job->pull_bytes : 0;
    record(mesh, job);
    if (status == LIG_OK && !done && job->entries > 0) {
        mesh->answering += job->state != LIGI_JOB_SENDING;
        job->state = LIGI_JOB_SENDING;
        return LIG_OK;
    }
    ligi_server_job_done(mesh, job);
    return status;
}

/* With tensors of a device: the response is sent when they have been copied, or refused if that
 * failed halfway. */
static lig_status copy_answer(lig_mesh *mesh, ligi_job *job, const lig_tensor *tensors,
                              ligi_on_stream on)
{
    assert(job->state == LIGI_JOB_TAKEN);
    lig_status status = ligi_job_answer(&mesh->parties[job->worker], job, tensors, on,
                                        job->staging ? job->staging->data : NULL);
    if (job->copying) {
        job->state = LIGI_JOB_SENDING;
        mesh->answering++;
    } else {
        drop_staging(job);
    }
    return status;
}

static lig_status send_answer(lig_mesh *mesh, ligi_job *job, const lig_tensor *tensors,
                              ligi_on_stream on, uint64_t began)
{
    LIG_TRY(take_staging(&mesh->inbox.queues[job->worker], job, tensors));
    uint64_t then = (uint64_t)ligi_stamp_clock_then(&mesh->ticks, began);
    job->stamps[2] = then > job->stamps[1] ? then : job->stamps[1];
    lig_status status;
    if (ligi_job_answer_needs_copies(job, tensors))
        return copy_answer(mesh, job, tensors, on);
    gather(job, tensors);
    status = post_answer(mesh, job);
    if (status == LIG_E_BUSY || status == LIG_E_NOMEM)
        drop_staging(job);
    return status;
}

void ligi_server_answer_copied(ligi_party *party, ligi_job *job, lig_status status)
{
    lig_mesh *mesh = party->mesh;
    if (status == LIG_OK)
        status = post_answer(mesh, job);
    else if (job->copies->failure.status == LIG_OK) /* not recorded yet */
        ligi_mesh_device_fail(mesh->device, status, lig_error_text());
    if (status == LIG_OK || job->state != LIGI_JOB_SENDING)
        return;
    char sentence[LIGI_MESSAGE_REFUSAL_BYTES]; /* the worker must not wait forever */
    snprintf(sentence, sizeof sentence, "%s", lig_error_text());
    (void)ligi_server_refuse(party, job->serial, status, sentence);
    ligi_server_job_done(mesh, job);
}

void ligi_server_sent(ligi_party *party, ligi_job *job, lig_status status)
{
    (void)status; /* a lost link is reported separately */
    if (job->state == LIGI_JOB_SENDING)
        ligi_server_job_done(party->mesh, job);
}

/* A job whose worker is lost is released, whatever the response is. */
static lig_status find_job(lig_mesh *mesh, uint64_t handler, ligi_job **job)
{
    if (mesh->role != LIG_MESH_SERVER)
        return lig_fail(LIG_E_INVALID, "only servers respond to requests");
    LIG_TRY(ligi_server_requests_find(&mesh->inbox, handler, job));
    ligi_party *party = &mesh->parties[(*job)->worker];
    if ((*job)->state == LIGI_JOB_TAKEN && party->peer.link)
        return LIG_OK;
    int again = (*job)->incarnation != party->peer.incarnation;
    ligi_server_requests_end(&mesh->inbox, *job);
    if (party->peer.state != LIGI_PRESENT)
        return ligi_session_peer_fail(&party->peer);
    return lig_fail(LIG_E_PEER, "worker %u was lost after it sent the request%s", party->peer.index,
                    again ? ", and has rejoined since" : "");
}

typedef struct await {
    lig_mesh *mesh;
    const uint64_t *handlers; /* NULL: all */
    size_t count;
} await;

static int is_sent(void *context)
{
    await *what = context;
    if (ligi_session_check(&what->mesh->session) != LIG_OK)
        return 1;
    ligi_mesh_device_help(what->mesh);
    if (what->handlers == NULL || what->mesh->answering == 0)
        return what->mesh->answering == 0 && what->mesh->outbox.open == 0;
    for (size_t i = 0; i < what->count; i++)
        if (ligi_server_requests_sending(&what->mesh->inbox, what->handlers[i]))
            return 0;
    return 1;
}

/* The stream orders what reads them before what is queued on it later. */
static int all_on_device(const lig_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i].memory == LIG_MEMORY_HOST)
            return 0;
    return 1;
}

/* On a stream that is being captured into a graph, the response is sent by its replays. */
static lig_status capture(lig_mesh *mesh, uint32_t worker, const lig_tensor *tensors, size_t count,
                          ligi_on_stream on, int *captured)
{
    ligi_mesh_device *device;
    int32_t number = -1;
    LIG_TRY(ligi_mesh_device_of(tensors, count, &number));
    LIG_TRY(ligi_mesh_device_capturing(mesh, number, on, &device));
    *captured = device != NULL;
    return device ? ligi_captured_respond(device, worker, tensors, count, on.stream) : LIG_OK;
}

/* Sends without waiting; *borrowed: the tensors are still read. */
static lig_status answer(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                         ligi_on_stream on, int *borrowed)
{
    uint64_t began = ligi_stamp_clock_read(&mesh->ticks);
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_job *job;
    lig_status status = find_job(mesh, handler, &job);
    int captured = 0;
    if (status == LIG_OK)
        status = check_answer(job, tensors, count);
    if (status == LIG_OK)
        status = capture(mesh, job->worker, tensors, count, on, &captured);
    if (status == LIG_OK && !captured)
        status = send_answer(mesh, job, tensors, on, began);
    if (status == LIG_OK && !(on.given && all_on_device(tensors, count)))
        *borrowed |= ligi_server_requests_sending(&mesh->inbox, handler);
    ligi_mesh_leave(mesh);
    return status;
}

lig_status ligi_server_replay(lig_mesh *mesh, struct ligi_captured_slot *slot)
{
    uint64_t handler = 0;
    int borrowed = 0; /* the graph's chunk: its next replay waits */
    LIG_TRY(ligi_mesh_enter(mesh));
    const ligi_session_peer *peer = &mesh->parties[slot->worker].peer;
    lig_status found = peer->state != LIGI_PRESENT
                           ? ligi_session_peer_fail(peer)
                           : ligi_server_requests_oldest(&mesh->inbox, slot->worker, &handler);
    ligi_mesh_leave(mesh);
    LIG_TRY(found);
    return answer(mesh, handler, slot->asked.push, slot->asked.push_count,
                  (ligi_on_stream){.graph = slot}, &borrowed);
}

static lig_status wait_sent(lig_mesh *mesh, const uint64_t *handlers, size_t count,
                            int64_t timeout_ns)
{
    await what = {.mesh = mesh, .handlers = handlers, .count = count};
    lig_status status = ligi_net_wait(mesh->session.net, is_sent, &what, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(status,
                        "requests or responses are still outstanding: call lig_mesh_settle");
    return status;
}

static lig_status respond(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                          ligi_on_stream on, int64_t timeout_ns)
{
    int borrowed = 0;
    LIG_TRY(answer(mesh, handler, tensors, count, on, &borrowed));
    return borrowed ? wait_sent(mesh, &handler, 1, timeout_ns) : LIG_OK;
}

lig_status lig_mesh_respond(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors,
                            size_t count, int64_t timeout_ns)
{
    return respond(mesh, handler, tensors, count, (ligi_on_stream){0}, timeout_ns);
}

lig_status lig_mesh_respond_on(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors,
                               size_t count, void *stream, int64_t timeout_ns)
{
    return respond(mesh, handler, tensors, count, (ligi_on_stream){.given = 1, .stream = stream},
                   timeout_ns);
}

lig_status lig_mesh_settle(lig_mesh *mesh, int64_t timeout_ns)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    return wait_sent(mesh, NULL, 0, timeout_ns);
}

static lig_status respond_vec(lig_mesh *mesh, const lig_mesh_rows *what, ligi_on_stream on,
                              int64_t timeout_ns)
{
    const lig_tensor *buffer = what->buffer;
    size_t count = what->count;
    LIG_TRY(ligi_mesh_check_tensor(buffer, "answer", 0));
    if (buffer->ndim == 0 || !lig_tensor_contiguous(buffer))
        return lig_fail(LIG_E_INVALID, "rows need a contiguous tensor with at least one dimension");
    for (size_t i = 0; i < count; i++)
        if (what->rows[i] < 0 || what->rows[i] > buffer->shape[0])
            return lig_fail(LIG_E_INVALID, "%lld rows requested from a buffer of %lld",
                            (long long)what->rows[i], (long long)buffer->shape[0]);
    int borrowed = 0;
    ligi_failure first = {.status = LIG_OK}; /* a failure does not delay the others */
    for (size_t i = 0; i < count; i++) {
        int64_t shape[LIG_MESH_NDIM_MAX];
        lig_tensor slice = *buffer;
        memcpy(shape, buffer->shape, buffer->ndim * sizeof *shape);
        shape[0] = what->rows[i];
        slice.shape = shape;
        lig_status status = ligi_shape_bytes(shape, slice.ndim, slice.dtype, &slice.bytes);
        if (status == LIG_OK)
            status = answer(mesh, what->handlers[i], &slice, 1, on, &borrowed);
        if (status != LIG_OK && first.status == LIG_OK)
            ligi_failure_take(&first, status);
    }
    lig_status sent = borrowed ? wait_sent(mesh, what->handlers, count, timeout_ns) : LIG_OK;
    return first.status == LIG_OK ? sent : ligi_failure_publish(&first);
}

lig_status lig_mesh_respond_vec(lig_mesh *mesh, const lig_tensor *buffer, const int64_t *rows,
                                const uint64_t *handlers, size_t count, int64_t timeout_ns)
{
    lig_mesh_rows what = {buffer, rows, handlers, count};
    return respond_vec(mesh, &what, (ligi_on_stream){0}, timeout_ns);
}

lig_status lig_mesh_respond_vec_on(lig_mesh *mesh, const lig_mesh_rows *rows, void *stream,
                                   int64_t timeout_ns)
{
    return respond_vec(mesh, rows, (ligi_on_stream){.given = 1, .stream = stream}, timeout_ns);
}

lig_status lig_mesh_refuse(lig_mesh *mesh, uint64_t handler, lig_status status,
                           const char *sentence)
{
    if (status <= LIG_OK || status > LIG_E_INTERNAL)
        return lig_fail(LIG_E_INVALID, "a refusal needs an error status");
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_job *job;
    lig_status found = find_job(mesh, handler, &job);
    if (found == LIG_OK) {
        found = ligi_server_refuse(&mesh->parties[job->worker], job->serial, status, sentence);
        ligi_server_job_done(mesh, job);
    }
    ligi_mesh_leave(mesh);
    return found;
}
