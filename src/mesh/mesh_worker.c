#include "mesh/mesh_worker.h"

#include "mesh/device/exchange.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh.h"

#include "group/session/session_peer.h"
#include "net/link/link_receive.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "tensor/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- sending requests --- */

static lig_status check_request(const lig_mesh *mesh, const lig_mesh_request *request)
{
    uint32_t servers = mesh->server_count;
    if (mesh->role != LIG_MESH_WORKER)
        return lig_fail(LIG_E_INVALID,
                        "push_pull is for workers, but this is a server or scheduler");
    if (request->push_count > LIG_MESH_TENSORS_MAX ||
        request->pull_count / servers > LIG_MESH_TENSORS_MAX)
        return lig_fail(LIG_E_LIMIT, "a request has at most %u tensors in each direction",
                        LIG_MESH_TENSORS_MAX);
    if (request->pull_count % servers != 0)
        return lig_fail(LIG_E_INVALID,
                        "%zu pull tensors for %u servers: pass the same number for each, those of "
                        "server 0 first",
                        request->pull_count, servers);
    size_t head = LIGI_MESSAGE_SMALL_BYTES;
    for (size_t i = 0; i < request->push_count; i++) {
        LIG_TRY(ligi_mesh_check_tensor(&request->push[i], "push", i));
        head += ligi_message_piece_bytes(&request->push[i]);
    }
    size_t most = head;
    for (size_t i = 0; i < request->pull_count; i++) {
        if (i % (request->pull_count / servers) == 0)
            most = head;
        LIG_TRY(ligi_mesh_check_tensor(&request->pull[i], "pull", i));
        most += ligi_message_piece_bytes(&request->pull[i]);
        if (most > LIGI_MESSAGE_BYTES_MAX)
            break;
    }
    if (most > LIGI_MESSAGE_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT,
                        "shapes too large: the tensors of a request need more than %d bytes",
                        LIGI_MESSAGE_BYTES_MAX);
    return LIG_OK;
}

static lig_status check_parties(const lig_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->party_count; i++)
        if (mesh->parties[i].peer.state != LIGI_PRESENT)
            return ligi_session_peer_fail(&mesh->parties[i].peer);
    return LIG_OK;
}

static uint64_t staging_bytes(const lig_tensor *tensors, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += lig_tensor_contiguous(&tensors[i]) ? 0 : ligi_block_aligned(tensors[i].bytes);
    return bytes;
}

/* The shape and strides of a non-contiguous pull tensor are kept until it is unpacked. */
static void keep_strided(ligi_request *request, const lig_tensor *tensor, size_t i, void *staged)
{
    int64_t *numbers = request->numbers + 2 * LIG_MESH_NDIM_MAX * i;
    memcpy(numbers, tensor->shape, tensor->ndim * sizeof *numbers);
    memcpy(numbers + LIG_MESH_NDIM_MAX, tensor->strides, tensor->ndim * sizeof *numbers);
    request->strided[i] = *tensor;
    request->strided[i].shape = numbers;
    request->strided[i].strides = numbers + LIG_MESH_NDIM_MAX;
    request->strided[i].reserved[0] = (uint64_t)(uintptr_t)staged;
}

static lig_status reserve_strided(ligi_request *request, size_t count)
{
    size_t room = request->strided_room;
    LIG_TRY(ligi_grow(&request->strided, &request->strided_room, count, sizeof *request->strided,
                      "a request"));
    if (room != request->strided_room) {
        size_t bytes = request->strided_room * 2 * LIG_MESH_NDIM_MAX * sizeof *request->numbers;
        void *numbers = realloc(request->numbers, bytes);
        if (numbers == NULL) {
            request->strided_room = 0; /* so that the next call retries */
            return lig_fail(LIG_E_NOMEM, "out of memory for a request");
        }
        request->numbers = numbers;
    }
    request->strided_count = count;
    for (size_t i = 0; i < count; i++)
        request->strided[i].data = NULL;
    return LIG_OK;
}

static lig_status make_room(lig_mesh *mesh, const lig_mesh_request *asked, ligi_request *request)
{
    uint64_t bytes = staging_bytes(asked->push, asked->push_count);
    uint64_t pulled = staging_bytes(asked->pull, asked->pull_count);
    if (bytes + pulled > 0)
        LIG_TRY(ligi_block_pool_take(mesh->outbox.pool, bytes + pulled, &request->staging));
    return pulled > 0 ? reserve_strided(request, asked->pull_count) : LIG_OK;
}

/* Sets where each tensor's bytes are read from or written to. */
static void place_tensors(const lig_mesh_request *asked, ligi_request *request,
                          size_t *push_entries)
{
    uint8_t *staged = request->staging ? request->staging->data : NULL;
    size_t entries = 0, k = request->pull_count;
    for (size_t i = 0; i < asked->push_count; i++) {
        const lig_tensor *tensor = &asked->push[i];
        void *data = tensor->data;
        if (!lig_tensor_contiguous(tensor)) {
            lig_tensor_pack(tensor, staged);
            data = staged;
            staged += ligi_block_aligned(tensor->bytes);
        }
        request->push_bytes += tensor->bytes;
        if (tensor->bytes > 0)
            request->iov[entries++] = (struct iovec){data, tensor->bytes};
    }
    *push_entries = entries;
    for (size_t i = 0; i < asked->pull_count; i++) {
        const lig_tensor *tensor = &asked->pull[i];
        ligi_share *share = &request->shares[i / k];
        void *data = tensor->data;
        if (!lig_tensor_contiguous(tensor)) {
            keep_strided(request, tensor, i, staged);
            data = staged;
            staged += ligi_block_aligned(tensor->bytes);
        }
        share->bytes += tensor->bytes;
        if (tensor->bytes > 0)
            share->iov[share->iov_count++] = (struct iovec){data, tensor->bytes};
    }
}

/* One frame to one server. */
void ligi_worker_send(lig_mesh *mesh, ligi_request *request, uint32_t server, ligi_send *send)
{
    ligi_share *share = &request->shares[server];
    int done = 0;
    assert(request->state == LIGI_REQUEST_OPEN && !share->sending);
    share->sending = 1;
    request->busy++;
    send->token = share;
    lig_status status = ligi_net_send(mesh->parties[server].peer.link, send, &done);
    if (status != LIG_OK)
        ligi_request_fail(request, status, lig_error_text());
    if (status != LIG_OK || done || send->count == 0) {
        share->sending = 0;
        request->busy--;
    }
}

static void send_share(lig_mesh *mesh, const lig_mesh_request *asked, ligi_request *request,
                       size_t push_entries, uint32_t server)
{
    size_t k = request->pull_count;
    ligi_request_parts parts = {.serial = request->serial,
                                .push = asked->push,
                                .pull = asked->pull + server * k,
                                .push_keys = asked->push_keys,
                                .pull_keys = asked->pull_keys + server * k,
                                .push_count = (uint32_t)asked->push_count,
                                .pull_count = (uint32_t)k};
    ligi_send send = {.head = mesh->head,
                      .head_bytes = ligi_message_request(&parts, mesh->head),
                      .iov = request->iov,
                      .count = push_entries,
                      .flags = LIGI_SEND_LEND};
    ligi_worker_send(mesh, request, server, &send);
}

static lig_status begin_request(lig_mesh *mesh, const lig_mesh_request *asked, ligi_on_stream on,
                                ligi_request **request)
{
    LIG_TRY(check_parties(mesh));
    if (on.graph == NULL) /* a failure is for the caller */
        LIG_TRY(ligi_mesh_device_check(mesh));
    uint32_t k = (uint32_t)(asked->pull_count / mesh->server_count);
    LIG_TRY(ligi_worker_requests_begin(&mesh->outbox, (uint32_t)asked->push_count, k, request));
    lig_status status = make_room(mesh, asked, *request);
    if (status != LIG_OK)
        ligi_worker_requests_undo(&mesh->outbox, *request);
    return status;
}

/* Tensors in device memory: the messages are sent when the copies have ended. */
static lig_status begin_exchange(lig_mesh *mesh, const lig_mesh_request *asked, ligi_on_stream on,
                                 int32_t number, ligi_request *request)
{
    ligi_mesh_device *device;
    LIG_TRY(ligi_mesh_device_open(mesh, number, &device));
    mesh->outbox.drop_exchange = ligi_exchange_detach;
    LIG_TRY(ligi_exchange_begin(device, asked, on, request));
    request->busy++;
    return LIG_OK;
}

void ligi_worker_pushed(lig_mesh *mesh, ligi_request *request)
{
    assert(request->busy > 0);
    request->busy--;
    request->stamps[1] = ligi_mesh_stamp(mesh);
    if (request->status != LIG_OK)
        ligi_worker_give_up(mesh, request, request->status, "");
}

void ligi_worker_unfilled(ligi_request *request, lig_status status, const char *sentence)
{
    if (request->status != LIG_OK)
        return;
    request->status = status;
    if (ligi_strdup(&request->sentence, sentence) != LIG_OK)
        request->sentence = NULL;
}

/* `device`: that of its tensors in device memory, or -1. */
static lig_status begin_any(lig_mesh *mesh, const lig_mesh_request *asked, ligi_on_stream on,
                            int32_t device, size_t *entries, ligi_request **request)
{
    LIG_TRY(begin_request(mesh, asked, on, request));
    place_tensors(asked, *request, entries);
    if (device < 0 && mesh->device && mesh->device->pushes.count > 0)
        device = mesh->device->number; /* requests do not overtake each other */
    if (device < 0)
        return LIG_OK;
    lig_status status = begin_exchange(mesh, asked, on, device, *request);
    if (status != LIG_OK)
        ligi_worker_requests_undo(&mesh->outbox, *request);
    return status;
}

/* On a stream that is being captured into a graph, the request is made by its replays. */
static lig_status capture(lig_mesh *mesh, const lig_mesh_request *asked, ligi_on_stream on,
                          int32_t number, int *captured, uint64_t *handler)
{
    ligi_mesh_device *device;
    LIG_TRY(ligi_mesh_device_capturing(mesh, number, on, &device));
    *captured = device != NULL;
    return device ? ligi_captured_push_pull(device, asked, on.stream, handler) : LIG_OK;
}

static lig_status push_pull(lig_mesh *mesh, const lig_mesh_request *asked, ligi_on_stream on,
                            uint64_t *handler)
{
    uint64_t began = ligi_stamp_clock_read(&mesh->ticks);
    int32_t device = -1;
    LIG_TRY(check_request(mesh, asked));
    LIG_TRY(ligi_mesh_device_of(asked->push, asked->push_count, &device));
    LIG_TRY(ligi_mesh_device_of(asked->pull, asked->pull_count, &device));
    LIG_TRY(ligi_mesh_enter(mesh));
    if (on.graph) /* requests that were queued before it on its stream are sent first */
        ligi_mesh_device_help(mesh);
    ligi_request *request;
    size_t entries;
    int captured = 0;
    lig_status status = capture(mesh, asked, on, device, &captured, handler);
    if (captured || status != LIG_OK) {
        ligi_mesh_leave(mesh);
        return status;
    }
    status = begin_any(mesh, asked, on, device, &entries, &request);
    if (status != LIG_OK) {
        ligi_mesh_leave(mesh);
        return status;
    }
    memset(request->stamps, 0, sizeof request->stamps);
    request->stamps[0] = (uint64_t)ligi_stamp_clock_then(&mesh->ticks, began);
    request->stamps[1] = ligi_mesh_stamp(mesh); /* set before the send: the server may answer at
                                                 * once */
    if (request->exchange)
        ligi_exchange_start(request->exchange);
    else
        for (uint32_t s = 0; s < mesh->server_count; s++)
            send_share(mesh, asked, request, entries, s);
    mesh->stats.requests++;
    mesh->stats.bytes_pushed += request->push_bytes * mesh->server_count;
    *handler = request->handler;
    if (request->status != LIG_OK)
        ligi_worker_give_up(mesh, request, request->status, "");
    ligi_mesh_leave(mesh);
    return LIG_OK;
}

lig_status lig_mesh_push_pull(lig_mesh *mesh, const lig_mesh_request *asked, uint64_t *handler)
{
    return push_pull(mesh, asked, (ligi_on_stream){0}, handler);
}

lig_status ligi_worker_replay(lig_mesh *mesh, const lig_mesh_request *asked,
                              struct ligi_captured_slot *slot)
{
    uint64_t handler;
    return push_pull(mesh, asked, (ligi_on_stream){.graph = slot}, &handler);
}

lig_status lig_mesh_push_pull_on(lig_mesh *mesh, const lig_mesh_request *asked, void *stream,
                                 uint64_t *handler)
{
    return push_pull(mesh, asked, (ligi_on_stream){.given = 1, .stream = stream}, handler);
}

/* --- completion --- */

static void settle(lig_mesh *mesh, ligi_request *request)
{
    if (!ligi_worker_requests_settle(&mesh->outbox, request))
        return;
    mesh->stats.failed += request->status != LIG_OK;
    if (request->exchange)
        ligi_exchange_ended(request);
    ligi_mesh_ring(mesh);
}

void ligi_worker_give_up(lig_mesh *mesh, ligi_request *request, lig_status status,
                         const char *sentence)
{
    ligi_request_fail(request, status, sentence);
    for (uint32_t s = 0; s < mesh->server_count; s++) {
        ligi_share *share = &request->shares[s];
        ligi_link *link = mesh->parties[s].peer.link;
        if (share->sending && link)
            (void)ligi_net_cancel(link, share);
        if (share->landing == 1) {
            assert(request->busy > 0);
            request->busy--;
            share->landing = 0;
            if (link && ligi_net_divert(link, share) == LIG_OK) {
                share->landing = LIGI_DIVERTED;
                request->diverted++;
            }
        }
    }
    settle(mesh, request);
}

void ligi_worker_lost(ligi_party *party)
{
    lig_mesh *mesh = party->mesh;
    char sentence[LIGI_SESSION_TEXT_BYTES];
    ligi_session_peer_text(&party->peer, sentence);
    ligi_exchange_lost(mesh, party->peer.index, party->peer.state == LIGI_LEFT);
    ligi_arenas_reset(&party->arenas);
    for (size_t i = 0; i < LIG_MESH_REQUESTS_MAX; i++) {
        ligi_request *request = mesh->outbox.ring[i];
        if (request == NULL)
            continue;
        ligi_share *share = &request->shares[party->peer.index];
        if (share->landing == LIGI_DIVERTED) { /* net has dropped it with the link */
            assert(request->diverted > 0);
            share->landing = 0;
            request->diverted--;
        }
        if (request->state == LIGI_REQUEST_OPEN && (share->open || share->sending))
            ligi_worker_give_up(mesh, request, LIG_E_PEER, sentence);
    }
}

static void answered(ligi_party *party, ligi_share *share)
{
    ligi_request *request = share->request;
    lig_mesh *mesh = party->mesh;
    if (!share->open)
        return;
    assert(request->state == LIGI_REQUEST_OPEN && request->open > 0);
    share->open = 0;
    request->open--;
    request->last = party->peer.index;
    mesh->stats.responses++;
    settle(mesh, request);
}

static void refused(ligi_party *party, const ligi_message *message)
{
    ligi_exchange_answered(party->mesh, message->serial, party->peer.index);
    ligi_request *request = ligi_worker_requests_open(&party->mesh->outbox, message->serial);
    char sentence[LIGI_MESSAGE_REFUSAL_BYTES + 32];
    if (request == NULL)
        return;
    snprintf(sentence, sizeof sentence, "server %u: %.*s", party->peer.index,
             (int)message->sentence_bytes, message->sentence);
    party->mesh->stats.refused++;
    request->last = party->peer.index;
    ligi_worker_give_up(party->mesh, request, message->status, sentence);
}

lig_status ligi_worker_head(ligi_party *party, const ligi_arrival *arrival, ligi_landing *landing)
{
    ligi_message message;
    lig_mesh *mesh = party->mesh;
    LIG_TRY(ligi_message_decode(arrival->head, arrival->head_bytes, NULL, &message));
    if (message.kind == LIGI_MESSAGE_REFUSAL && arrival->payload_bytes == 0) {
        refused(party, &message);
        return LIG_OK;
    }
    if (message.kind == LIGI_MESSAGE_OPENED && arrival->payload_bytes == 0) {
        ligi_arena_on_opened(party, &message);
        return LIG_OK;
    }
    if (message.kind != LIGI_MESSAGE_REPLY)
        return lig_fail(LIG_E_CORRUPT, "unexpected worker message from server %u",
                        party->peer.index);
    ligi_request *request = ligi_worker_requests_open(&mesh->outbox, message.serial);
    ligi_exchange_answered(mesh, message.serial, party->peer.index);
    if (request == NULL || request->status != LIG_OK)
        return LIG_OK; /* cancelled: the response is discarded */
    ligi_share *share = &request->shares[party->peer.index];
    if (!share->open || share->landing)
        return lig_fail(LIG_E_CORRUPT, "protocol error: server %u responded twice",
                        party->peer.index);
    if (arrival->payload_bytes != share->bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "server %u responded with %llu bytes, but %llu were requested",
                        party->peer.index, (unsigned long long)arrival->payload_bytes,
                        (unsigned long long)share->bytes);
    memcpy(&share->stamps[2], message.stamps, sizeof message.stamps);
    assert(request->state == LIGI_REQUEST_OPEN);
    share->landing = 1;
    request->busy++;
    landing->iov = share->iov;
    landing->count = share->iov_count;
    landing->token = share;
    return LIG_OK;
}

static void unpack(ligi_request *request, uint32_t server)
{
    size_t k = request->pull_count;
    for (size_t i = server * k; i < (server + 1) * k && i < request->strided_count; i++) {
        const lig_tensor *tensor = &request->strided[i];
        if (tensor->data)
            lig_tensor_unpack(tensor, (const void *)(uintptr_t)tensor->reserved[0]);
    }
}

void ligi_worker_arrived(ligi_party *party, ligi_share *share)
{
    ligi_request *request = share->request;
    if (share->landing == LIGI_DIVERTED) {
        assert(request->diverted > 0);
        share->landing = 0;
        request->diverted--;
        return;
    }
    assert(share->landing == 1 && request->busy > 0);
    share->landing = 0;
    request->busy--;
    share->stamps[6] = ligi_mesh_stamp(party->mesh);
    if (request->strided_count > 0)
        unpack(request, party->peer.index);
    party->mesh->stats.bytes_pulled += share->bytes;
    if (!party->offset.exact) {
        uint64_t moments[4] = {request->stamps[1], share->stamps[2], share->stamps[5],
                               share->stamps[6]};
        ligi_clock_offset_feed(&party->offset, moments);
    }
    answered(party, share);
}

void ligi_worker_sent(ligi_party *party, ligi_share *share)
{
    ligi_request *request = share->request;
    if (!share->sending)
        return;
    assert(request->busy > 0);
    share->sending = 0;
    request->busy--;
    settle(party->mesh, request);
}
