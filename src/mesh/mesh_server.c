#include "mesh/mesh_server.h"

#include "mesh/device/job_copies.h"
#include "mesh/mesh.h"
#include "mesh/mesh_respond.h"
#include "mesh/receive_buffers.h"

#include "base/clock.h"
#include "group/session/session_peer.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

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
    if (message.payload_bytes != arrival->payload_bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: worker %u announced %llu bytes and sent %llu",
                        party->peer.index, (unsigned long long)message.payload_bytes,
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

lig_status ligi_server_refuse(ligi_party *party, uint64_t serial, lig_status status,
                              const char *sentence)
{
    uint8_t head[LIGI_MESSAGE_REFUSAL_BYTES];
    size_t bytes = ligi_message_refusal(serial, status, sentence, head);
    party->mesh->stats.refused++;
    return ligi_net_send(party->peer.link, &(ligi_send){.head = head, .head_bytes = bytes}, NULL);
}

/* The payload is discarded and the worker notified. */
static lig_status turn_away(ligi_party *party, ligi_job *job, lig_status status)
{
    char sentence[LIGI_MESSAGE_REFUSAL_BYTES];
    uint64_t serial = job->serial;
    snprintf(sentence, sizeof sentence, "%s", lig_error_text());
    ligi_server_requests_end(&party->mesh->inbox, job);
    return ligi_server_refuse(party, serial, status, sentence);
}

/* A request with tensors of devices. */
static lig_status accept_copies(ligi_party *party, ligi_job *job, ligi_landing *landing)
{
    lig_status status = ligi_job_receive(party, job, landing);
    if (status == LIG_OK)
        return LIG_OK;
    *landing = (ligi_landing){0};
    if (status != LIG_E_CORRUPT)
        return turn_away(party, job, status);
    ligi_server_requests_end(&party->mesh->inbox, job);
    return status;
}

static lig_status accept_request(ligi_party *party, const ligi_arrival *arrival, ligi_job *job,
                                 ligi_landing *landing)
{
    if (ligi_job_needs_copies(party->mesh, job))
        return accept_copies(party, job, landing);
    ligi_queue *queue = &party->mesh->inbox.queues[party->peer.index];
    uint64_t bytes;
    lig_status status = ligi_mesh_receive_size(queue, job, arrival, &bytes);
    if (status == LIG_OK)
        status = ligi_block_pool_take(queue->pool, bytes, &job->block);
    if (status != LIG_OK)
        return turn_away(party, job, status);
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
    return ligi_server_refuse(party, message.serial, LIG_E_LIMIT, sentence);
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
    int pending = 0;
    job->stamps[0] = ligi_mesh_stamp(mesh);
    mesh->stats.requests++;
    mesh->stats.bytes_pushed += job->push_bytes;
    lig_status status = ligi_job_raise(party, job, &pending);
    if (status != LIG_OK) {
        (void)turn_away(party, job, status);
        return;
    }
    if (pending)
        return;
    ligi_server_requests_queue(&mesh->inbox, job);
    ligi_mesh_ring(mesh);
}

void ligi_server_copied(ligi_party *party, ligi_job *job, lig_status status)
{
    lig_mesh *mesh = party->mesh;
    job->copying = 0;
    if (job->dropped) {
        ligi_server_job_done(mesh, job);
    } else if (job->state == LIGI_JOB_SENDING) {
        ligi_server_answer_copied(party, job, status);
    } else if (status != LIG_OK) {
        (void)turn_away(party, job, status);
    } else {
        ligi_server_requests_queue(&mesh->inbox, job);
        ligi_mesh_ring(mesh);
    }
}

void ligi_server_lost(ligi_party *party)
{
    ligi_server_requests_lose(&party->mesh->inbox, party->peer.index, party->peer.state,
                              party->peer.why);
    ligi_arenas_reset(&party->arenas);
}

/* --- delivering --- */

typedef struct await {
    lig_mesh *mesh;
    uint32_t mode;
} await;

static int is_ready(void *context)
{
    await *what = context;
    ligi_mesh_device_help(what->mesh);
    return ligi_session_check(&what->mesh->session) != LIG_OK ||
           ligi_server_requests_ready(&what->mesh->inbox, what->mode) ||
           ligi_mesh_device_failed(what->mesh);
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
        LIG_TRY(ligi_mesh_device_check(mesh));
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
    ligi_mesh_device *device;
    lig_status status = buffer->memory == LIG_MEMORY_HOST
                            ? LIG_OK
                            : ligi_mesh_device_open(mesh, buffer->device, &device);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = ligi_registered_set(&mesh->inbox.queues[workers[i]].places, keys[i],
                                     (uint8_t *)buffer->data + i * bytes, bytes, buffer->memory);
    ligi_mesh_leave(mesh);
    return status;
}
