#include "mesh/mesh_server.h"

#include "mesh/mesh.h"
#include "mesh/receive_buffers.h"

#include "base/clock.h"
#include "group/session/session_peer.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- receiving --- */

static lig_status read_request(ligi_party *party, const ligi_arrival *arrival, ligi_job *job)
{
    ligi_message message;
    LIG_TRY(ligi_message_decode(arrival->head, arrival->head_bytes, &job->pieces, &message));
    if (message.kind != LIGI_MESSAGE_REQUEST)
        return lig_fail(LIG_E_CORRUPT, "unexpected server message from worker %u",
                        party->peer.index);
    if (message.push_bytes != arrival->payload_bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: worker %u announced %llu bytes and sent %llu",
                        party->peer.index, (unsigned long long)message.push_bytes,
                        (unsigned long long)arrival->payload_bytes);
    job->serial = message.serial;
    job->push_bytes = message.push_bytes;
    job->pull_bytes = message.pull_bytes;
    LIG_TRY(ligi_job_reserve(job));
    for (uint32_t i = 0; i < message.push_count; i++)
        job->places[i] = NULL;
    job->push_count = message.push_count;
    job->pull_count = message.pull_count;
    return LIG_OK;
}

static lig_status send_refusal(ligi_party *party, uint64_t serial, lig_status status,
                               const char *sentence)
{
    uint8_t head[LIGI_MESSAGE_REFUSAL_BYTES];
    size_t bytes = ligi_message_refusal(serial, status, sentence, head);
    party->mesh->stats.refused++;
    return ligi_net_send(party->peer.link, &(ligi_send){.head = head, .head_bytes = bytes}, NULL);
}

static lig_status accept_request(ligi_party *party, const ligi_arrival *arrival, ligi_job *job,
                                 ligi_landing *landing)
{
    ligi_queue *queue = &party->mesh->inbox.queues[party->peer.index];
    uint64_t bytes;
    lig_status status = ligi_mesh_receive_size(queue, job, arrival, &bytes);
    if (status == LIG_OK)
        status = ligi_block_pool_take(queue->pool, bytes, &job->block);
    if (status != LIG_OK) { /* the payload is discarded and the worker notified */
        uint64_t serial = job->serial;
        ligi_server_requests_end(&party->mesh->inbox, job);
        return send_refusal(party, serial, status, lig_error_text());
    }
    status = ligi_mesh_receive_place(party->mesh, job, arrival, landing);
    if (status != LIG_OK)
        ligi_server_requests_end(&party->mesh->inbox, job);
    return status;
}

/* One request too many: the worker may not know, since it does not count cancelled requests. */
static lig_status refuse_request(ligi_party *party, const ligi_arrival *arrival)
{
    char sentence[LIGI_MESSAGE_REFUSAL_BYTES];
    ligi_pieces pieces = {0};
    ligi_message message;
    snprintf(sentence, sizeof sentence, "%s", lig_error_text());
    lig_status status = ligi_message_decode(arrival->head, arrival->head_bytes, &pieces, &message);
    ligi_pieces_fini(&pieces);
    LIG_TRY(status);
    if (message.kind != LIGI_MESSAGE_REQUEST)
        return lig_fail(LIG_E_CORRUPT, "unexpected server message from worker %u",
                        party->peer.index);
    return send_refusal(party, message.serial, LIG_E_LIMIT, sentence);
}

lig_status ligi_server_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing)
{
    ligi_server_requests *inbox = &party->mesh->inbox;
    ligi_job *job;
    lig_status status = ligi_server_requests_begin(inbox, party->peer.index, &job);
    if (status == LIG_E_LIMIT)
        return refuse_request(party, arrival);
    LIG_TRY(status);
    status = read_request(party, arrival, job);
    if (status != LIG_OK) {
        ligi_server_requests_end(inbox, job);
        return status;
    }
    return accept_request(party, arrival, job, landing);
}

void ligi_server_arrived(ligi_party *party, ligi_job *job)
{
    lig_mesh *mesh = party->mesh;
    job->stamps[0] = ligi_mesh_stamp(mesh);
    mesh->stats.requests++;
    mesh->stats.bytes_pushed += job->push_bytes;
    ligi_server_requests_queue(&mesh->inbox, job);
    ligi_mesh_ring(mesh);
}

/* --- delivering --- */

typedef struct await {
    lig_mesh *mesh;
    uint32_t mode;
    const uint64_t *handlers; /* NULL: all */
    size_t count;
} await;

static int is_ready(void *context)
{
    await *what = context;
    return ligi_session_check(&what->mesh->session) != LIG_OK ||
           ligi_server_requests_ready(&what->mesh->inbox, what->mode);
}

static void describe(const ligi_job *job, lig_mesh_arrival *arrival)
{
    *arrival = (lig_mesh_arrival){.handler = job->handler,
                                  .worker = job->worker,
                                  .tensor_count = job->push_count,
                                  .pull_count = job->pull_count,
                                  .tensors = job->pieces.tensors,
                                  .keys = job->pieces.keys,
                                  .pulls = job->pieces.tensors + job->push_count,
                                  .pull_keys = job->pieces.keys + job->push_count};
}

static lig_status hand_out(lig_mesh *mesh, uint32_t mode, lig_mesh_arrival *arrivals, size_t room,
                           size_t *count)
{
    ligi_job *few[64], **jobs = few;
    if (room > mesh->worker_count)
        room = mesh->worker_count;
    if (room > sizeof few / sizeof *few)
        jobs = mesh->taken;
    lig_status status = ligi_server_requests_take(&mesh->inbox, mode, jobs, room, count);
    mesh->news = 0;
    mesh->mode = mode;
    uint64_t now = ligi_mesh_stamp(mesh);
    for (size_t i = 0; status == LIG_OK && i < *count; i++) {
        jobs[i]->stamps[1] = now;
        describe(jobs[i], &arrivals[i]);
    }
    ligi_mesh_ring(mesh);
    return status;
}

static lig_status late(const lig_mesh *mesh, uint32_t mode)
{
    uint32_t i = 0;
    while (i + 1 < mesh->worker_count && mesh->inbox.queues[i].first != NULL)
        i++;
    if (mode == LIG_MESH_ALL)
        return lig_fail(LIG_E_TIMEOUT, "timeout: no request from worker %u", i);
    return lig_fail(LIG_E_TIMEOUT, "timeout: no request from any worker");
}

/* `end_ns`: LIG_FOREVER, or the deadline. */
static lig_status take_batch(lig_mesh *mesh, uint32_t mode, int64_t end_ns,
                             lig_mesh_arrival *arrivals, size_t room, size_t *count)
{
    await what = {.mesh = mesh, .mode = mode};
    for (;;) {
        int64_t left = end_ns < 0 ? LIG_FOREVER : end_ns - ligi_now_ns();
        lig_status waited =
            ligi_net_await(mesh->session.net, is_ready, &what, end_ns >= 0 && left < 0 ? 0 : left);
        if (waited != LIG_OK && waited != LIG_E_TIMEOUT)
            return waited;
        LIG_TRY(ligi_session_usable(&mesh->session));
        LIG_TRY(hand_out(mesh, mode, arrivals, room, count));
        if (*count > 0)
            return LIG_OK;
        if (waited == LIG_E_TIMEOUT)
            return late(mesh, mode);
    }
}

lig_status lig_mesh_get_batch(lig_mesh *mesh, uint32_t mode, int64_t timeout_ns,
                              lig_mesh_arrival *arrivals, size_t room, size_t *count)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    if (mesh->role != LIG_MESH_SERVER)
        return lig_fail(LIG_E_INVALID,
                        "get_batch is for servers, but this is a worker or scheduler");
    if (mode > LIG_MESH_ANY || room == 0 || (mode == LIG_MESH_ALL && room < mesh->worker_count))
        return lig_fail(LIG_E_INVALID,
                        "get_batch needs mode all or any and room for %u requests, not %zu",
                        mode == LIG_MESH_ALL ? mesh->worker_count : 1, room);
    int64_t now = timeout_ns < 0 ? 0 : ligi_now_ns();
    if (timeout_ns > INT64_MAX - now)
        timeout_ns = LIG_FOREVER;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = take_batch(mesh, mode, timeout_ns < 0 ? LIG_FOREVER : now + timeout_ns,
                                   arrivals, room, count);
    ligi_mesh_leave(mesh);
    return status;
}

lig_status lig_mesh_hold_take(lig_mesh *mesh, uint64_t handler, lig_mesh_hold **hold)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_job *job;
    lig_status status = ligi_server_requests_find(&mesh->inbox, handler, &job);
    if (status == LIG_OK) {
        ligi_block_hold(job->block);
        *hold = (lig_mesh_hold *)job->block;
    }
    ligi_mesh_leave(mesh);
    return status;
}

void lig_mesh_hold_drop(lig_mesh_hold *hold)
{
    ligi_block_drop((ligi_block *)hold);
}

/* --- responding --- */

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

/* Fills job->iov; non-contiguous tensors are packed. */
static lig_status gather(ligi_queue *queue, ligi_job *job, const lig_tensor *tensors,
                         size_t *entries)
{
    uint64_t packed = 0;
    for (uint32_t i = 0; i < job->pull_count; i++)
        packed += lig_tensor_contiguous(&tensors[i]) ? 0 : ligi_block_aligned(tensors[i].bytes);
    if (packed > 0)
        LIG_TRY(ligi_block_pool_take(queue->pool, packed, &job->staging));
    uint8_t *at = packed > 0 ? job->staging->data : NULL;
    *entries = 0;
    for (uint32_t i = 0; i < job->pull_count; i++) {
        void *data = tensors[i].data;
        if (!lig_tensor_contiguous(&tensors[i])) {
            lig_tensor_pack(&tensors[i], at);
            data = at;
            at += ligi_block_aligned(tensors[i].bytes);
        }
        if (tensors[i].bytes > 0)
            job->iov[(*entries)++] = (struct iovec){data, tensors[i].bytes};
    }
    return LIG_OK;
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

static void job_done(lig_mesh *mesh, ligi_job *job)
{
    assert(job->state != LIGI_JOB_SENDING || mesh->answering > 0);
    mesh->answering -= job->state == LIGI_JOB_SENDING;
    ligi_server_requests_end(&mesh->inbox, job);
    ligi_mesh_ring(mesh); /* another request may be waiting for its buffer */
}

static lig_status send_answer(lig_mesh *mesh, ligi_job *job, const lig_tensor *tensors,
                              uint64_t began)
{
    ligi_party *party = &mesh->parties[job->worker];
    uint8_t head[LIGI_MESSAGE_SMALL_BYTES];
    size_t entries;
    int done = 0;
    LIG_TRY(gather(&mesh->inbox.queues[job->worker], job, tensors, &entries));
    uint64_t then = (uint64_t)ligi_stamp_clock_then(&mesh->ticks, began);
    job->stamps[2] = then > job->stamps[1] ? then : job->stamps[1];
    job->stamps[3] = ligi_mesh_stamp(mesh);
    ligi_send send = {.head = head,
                      .head_bytes =
                          ligi_message_small(LIGI_MESSAGE_REPLY, job->serial, job->stamps, head),
                      .iov = job->iov,
                      .count = entries,
                      .token = job};
    lig_status status = ligi_net_send(party->peer.link, &send, &done);
    if (status == LIG_E_BUSY || status == LIG_E_NOMEM) { /* nothing was taken */
        ligi_block_drop(job->staging);
        job->staging = NULL;
        return status;
    }
    mesh->stats.responses += status == LIG_OK;
    mesh->stats.bytes_pulled += status == LIG_OK ? job->pull_bytes : 0;
    record(mesh, job);
    if (status == LIG_OK && !done && entries > 0) {
        assert(job->state == LIGI_JOB_TAKEN);
        job->state = LIGI_JOB_SENDING;
        mesh->answering++;
        return LIG_OK;
    }
    job_done(mesh, job);
    return status;
}

void ligi_server_sent(ligi_party *party, ligi_job *job, lig_status status)
{
    (void)status; /* a lost link is reported separately */
    if (job->state == LIGI_JOB_SENDING)
        job_done(party->mesh, job);
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

static int is_sent(void *context)
{
    await *what = context;
    if (ligi_session_check(&what->mesh->session) != LIG_OK)
        return 1;
    if (what->handlers == NULL || what->mesh->answering == 0)
        return what->mesh->answering == 0 && what->mesh->outbox.open == 0;
    for (size_t i = 0; i < what->count; i++)
        if (ligi_server_requests_sending(&what->mesh->inbox, what->handlers[i]))
            return 0;
    return 1;
}

/* Sends without waiting; *borrowed: the tensors are still read. */
static lig_status answer(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                         int *borrowed)
{
    uint64_t began = ligi_stamp_clock_read(&mesh->ticks);
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_job *job;
    lig_status status = find_job(mesh, handler, &job);
    if (status == LIG_OK)
        status = check_answer(job, tensors, count);
    if (status == LIG_OK)
        status = send_answer(mesh, job, tensors, began);
    if (status == LIG_OK)
        *borrowed |= ligi_server_requests_sending(&mesh->inbox, handler);
    ligi_mesh_leave(mesh);
    return status;
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

lig_status lig_mesh_respond(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors,
                            size_t count, int64_t timeout_ns)
{
    int borrowed = 0;
    LIG_TRY(answer(mesh, handler, tensors, count, &borrowed));
    return borrowed ? wait_sent(mesh, &handler, 1, timeout_ns) : LIG_OK;
}

lig_status lig_mesh_settle(lig_mesh *mesh, int64_t timeout_ns)
{
    LIG_TRY(ligi_session_check(&mesh->session));
    return wait_sent(mesh, NULL, 0, timeout_ns);
}

lig_status lig_mesh_respond_vec(lig_mesh *mesh, const lig_tensor *buffer, const int64_t *rows,
                                const uint64_t *handlers, size_t count, int64_t timeout_ns)
{
    LIG_TRY(ligi_mesh_check_tensor(buffer, "answer", 0));
    if (buffer->ndim == 0 || !lig_tensor_contiguous(buffer))
        return lig_fail(LIG_E_INVALID, "rows need a contiguous tensor with at least one dimension");
    for (size_t i = 0; i < count; i++)
        if (rows[i] < 0 || rows[i] > buffer->shape[0])
            return lig_fail(LIG_E_INVALID, "%lld rows requested from a buffer of %lld",
                            (long long)rows[i], (long long)buffer->shape[0]);
    int borrowed = 0;
    ligi_failure first = {.status = LIG_OK}; /* a failure does not delay the others */
    for (size_t i = 0; i < count; i++) {
        int64_t shape[LIG_MESH_NDIM_MAX];
        lig_tensor slice = *buffer;
        memcpy(shape, buffer->shape, buffer->ndim * sizeof *shape);
        shape[0] = rows[i];
        slice.shape = shape;
        lig_status status = ligi_shape_bytes(shape, slice.ndim, slice.dtype, &slice.bytes);
        if (status == LIG_OK)
            status = answer(mesh, handlers[i], &slice, 1, &borrowed);
        if (status != LIG_OK && first.status == LIG_OK)
            ligi_failure_take(&first, status);
    }
    lig_status sent = borrowed ? wait_sent(mesh, handlers, count, timeout_ns) : LIG_OK;
    return first.status == LIG_OK ? sent : ligi_failure_publish(&first);
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
        found = send_refusal(&mesh->parties[job->worker], job->serial, status, sentence);
        job_done(mesh, job);
    }
    ligi_mesh_leave(mesh);
    return found;
}

lig_status lig_mesh_register_recv_buffer(lig_mesh *mesh, const lig_tensor *buffer,
                                         const uint32_t *workers, const uint64_t *keys,
                                         size_t count)
{
    LIG_TRY(ligi_mesh_check_tensor(buffer, "buffer", 0));
    if (mesh->role != LIG_MESH_SERVER)
        return lig_fail(LIG_E_INVALID, "register_recv_buffer is for servers");
    uint64_t elements = buffer->bytes / lig_dtype_bytes(buffer->dtype);
    if (count == 0 || elements % count != 0 || !lig_tensor_contiguous(buffer))
        return lig_fail(LIG_E_INVALID,
                        "a %s buffer of %llu elements cannot be divided into %zu equal slices",
                        lig_tensor_contiguous(buffer) ? "contiguous" : "strided",
                        (unsigned long long)elements, count);
    uint64_t bytes = buffer->bytes / count;
    for (size_t i = 0; i < count; i++)
        if (workers[i] >= mesh->worker_count)
            return lig_fail(LIG_E_NOTFOUND, "no worker %u: there are %u", workers[i],
                            mesh->worker_count);
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = ligi_registered_set(&mesh->inbox.queues[workers[i]].places, keys[i],
                                     (uint8_t *)buffer->data + i * bytes, bytes);
    ligi_mesh_leave(mesh);
    return status;
}
