#include "mesh/mesh_worker.h"

#include "mesh/mesh.h"

#include "base/clock.h"
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
static void send_share(lig_mesh *mesh, const lig_mesh_request *asked, ligi_request *request,
                       size_t push_entries, uint32_t server)
{
    ligi_share *share = &request->shares[server];
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
                      .flags = LIGI_SEND_LEND,
                      .token = share};
    int done = 0;
    assert(request->state == LIGI_REQUEST_OPEN && !share->sending);
    share->sending = 1;
    request->busy++;
    lig_status status = ligi_net_send(mesh->parties[server].peer.link, &send, &done);
    if (status != LIG_OK)
        ligi_request_fail(request, status, lig_error_text());
    if (status != LIG_OK || done || push_entries == 0) {
        share->sending = 0;
        request->busy--;
    }
}

static lig_status begin_request(lig_mesh *mesh, const lig_mesh_request *asked,
                                ligi_request **request)
{
    LIG_TRY(check_parties(mesh));
    uint32_t k = (uint32_t)(asked->pull_count / mesh->server_count);
    LIG_TRY(ligi_worker_requests_begin(&mesh->outbox, (uint32_t)asked->push_count, k, request));
    lig_status status = make_room(mesh, asked, *request);
    if (status != LIG_OK)
        ligi_worker_requests_undo(&mesh->outbox, *request);
    return status;
}

static void give_up(lig_mesh *mesh, ligi_request *request, lig_status status, const char *sentence);

lig_status lig_mesh_push_pull(lig_mesh *mesh, const lig_mesh_request *asked, uint64_t *handler)
{
    uint64_t began = ligi_stamp_clock_read(&mesh->ticks);
    LIG_TRY(check_request(mesh, asked));
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    size_t entries;
    lig_status status = begin_request(mesh, asked, &request);
    if (status != LIG_OK) {
        ligi_mesh_leave(mesh);
        return status;
    }
    place_tensors(asked, request, &entries);
    memset(request->stamps, 0, sizeof request->stamps);
    request->stamps[0] = (uint64_t)ligi_stamp_clock_then(&mesh->ticks, began);
    request->stamps[1] = ligi_mesh_stamp(mesh); /* set before the send: the server may answer at
                                                 * once */
    for (uint32_t s = 0; s < mesh->server_count; s++)
        send_share(mesh, asked, request, entries, s);
    mesh->stats.requests++;
    mesh->stats.bytes_pushed += request->push_bytes * mesh->server_count;
    *handler = request->handler;
    if (request->status != LIG_OK)
        give_up(mesh, request, request->status, "");
    ligi_mesh_leave(mesh);
    return LIG_OK;
}

/* --- completion --- */

static void settle(lig_mesh *mesh, ligi_request *request)
{
    if (!ligi_worker_requests_settle(&mesh->outbox, request))
        return;
    mesh->stats.failed += request->status != LIG_OK;
    ligi_mesh_ring(mesh);
}

/* After this nothing new is written to the request's tensors; it ends when no transfer uses them
 * any more. */
static void give_up(lig_mesh *mesh, ligi_request *request, lig_status status, const char *sentence)
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
            give_up(mesh, request, LIG_E_PEER, sentence);
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
    ligi_request *request = ligi_worker_requests_open(&party->mesh->outbox, message->serial);
    char sentence[LIGI_MESSAGE_REFUSAL_BYTES + 32];
    if (request == NULL)
        return;
    snprintf(sentence, sizeof sentence, "server %u: %.*s", party->peer.index,
             (int)message->sentence_bytes, message->sentence);
    party->mesh->stats.refused++;
    request->last = party->peer.index;
    give_up(party->mesh, request, message->status, sentence);
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
    if (message.kind != LIGI_MESSAGE_REPLY)
        return lig_fail(LIG_E_CORRUPT, "unexpected worker message from server %u",
                        party->peer.index);
    ligi_request *request = ligi_worker_requests_open(&mesh->outbox, message.serial);
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

/* --- waiting --- */

typedef struct await {
    const lig_mesh *mesh;
    const ligi_request *request; /* a slot: it stays, but may be reused for another request */
    uint64_t serial;
} await;

/* Called in every round of polling, so it must not search. */
static int has_ended(void *context)
{
    const await *what = context;
    return what->request->state == LIGI_REQUEST_ENDED || what->request->serial != what->serial ||
           what->mesh->session.closed || what->mesh->session.broken;
}

static lig_status late(lig_mesh *mesh, const ligi_request *request)
{
    uint32_t s = 0;
    while (s + 1 < mesh->server_count && !request->shares[s].open)
        s++;
    return lig_fail(LIG_E_TIMEOUT, "timeout: server %u has not answered request %llu", s,
                    (unsigned long long)request->handler);
}

static void record(lig_mesh *mesh, const ligi_request *request)
{
    for (uint32_t s = 0; mesh->recorder.fd >= 0 && s < mesh->server_count; s++) {
        const ligi_share *share = &request->shares[s];
        ligi_trace_record entry = {.kind = LIG_MESH_WORKER,
                                   .peer = s,
                                   .serial = request->serial,
                                   .push_bytes = request->push_bytes,
                                   .pull_bytes = share->bytes,
                                   .offset_ns = ligi_clock_offset_get(&mesh->parties[s].offset)};
        memcpy(entry.stamps, share->stamps, sizeof entry.stamps);
        entry.stamps[0] = request->stamps[0];
        entry.stamps[1] = request->stamps[1];
        entry.stamps[7] = request->stamps[7];
        ligi_clock_offset_apply(&mesh->parties[s].offset, entry.stamps);
        ligi_trace_recorder_add(&mesh->recorder, &entry);
    }
}

/* The first waiter finalises the stamps. */
static void tell(lig_mesh *mesh, ligi_request *request)
{
    if (request->waited)
        return;
    const ligi_share *share = &request->shares[request->last];
    request->waited = 1;
    mesh->outbox.unwaited--;
    request->stamps[7] = ligi_mesh_stamp(mesh);
    if (request->status != LIG_OK)
        return;
    memcpy(&request->stamps[2], &share->stamps[2], 5 * sizeof request->stamps[0]);
    record(mesh, request);
    ligi_clock_offset_apply(&mesh->parties[request->last].offset, request->stamps);
}

static lig_status outcome(lig_mesh *mesh, ligi_request *request)
{
    if (request->state != LIGI_REQUEST_ENDED)
        return late(mesh, request);
    tell(mesh, request);
    ligi_mesh_ring(mesh);
    if (request->status == LIG_OK)
        return LIG_OK;
    return lig_fail(request->status, "%s", request->sentence ? request->sentence : "it failed");
}

/* Others may have had the lock: everything is checked again. */
static lig_status await_end(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns,
                            ligi_request **request)
{
    await what = {mesh, *request, (*request)->serial};
    lig_status waited = ligi_net_await(mesh->session.net, has_ended, &what, timeout_ns);
    if (waited != LIG_OK && waited != LIG_E_TIMEOUT)
        return waited;
    LIG_TRY(ligi_session_usable(&mesh->session));
    if ((*request)->serial == what.serial)
        return LIG_OK;
    return ligi_worker_requests_find(&mesh->outbox, handler, request);
}

lig_status lig_mesh_wait(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns)
{
    ligi_request *request;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK && request->state != LIGI_REQUEST_ENDED)
        status = await_end(mesh, handler, timeout_ns, &request);
    if (status == LIG_OK)
        status = outcome(mesh, request);
    ligi_mesh_leave(mesh);
    return status;
}

int lig_mesh_done(lig_mesh *mesh, uint64_t handler)
{
    ligi_request *request;
    if (ligi_session_check(&mesh->session) != LIG_OK)
        return 1;
    (void)ligi_net_poll(mesh->session.net);
    if (ligi_mesh_enter(mesh) != LIG_OK)
        return 1;
    int done = ligi_worker_requests_find(&mesh->outbox, handler, &request) != LIG_OK ||
               request->state == LIGI_REQUEST_ENDED;
    ligi_mesh_leave(mesh);
    return done;
}

lig_status lig_mesh_cancel(lig_mesh *mesh, uint64_t handler)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK && request->state == LIGI_REQUEST_OPEN)
        give_up(mesh, request, LIG_E_CLOSED, "the request was cancelled");
    ligi_mesh_leave(mesh);
    ligi_net_wake(mesh->session.net);
    return status;
}

lig_status lig_mesh_get_all_handlers(lig_mesh *mesh, uint64_t handler, uint64_t *handlers,
                                     size_t room, size_t *count)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK) {
        *count = request->waited ? 1 : request->handler_count;
        for (size_t i = 0; i < *count && i < room; i++)
            handlers[i] = handler + i;
    }
    ligi_mesh_leave(mesh);
    return status;
}

lig_status lig_mesh_fetch_trace(lig_mesh *mesh, uint64_t handler, uint64_t stamps[LIG_MESH_STAMPS])
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_with(&mesh->outbox, handler, &request);
    if (status == LIG_OK && !request->waited)
        status = lig_fail(LIG_E_BUSY,
                          "request %llu has not been waited for: its trace is available afterwards",
                          (unsigned long long)handler);
    if (status == LIG_OK)
        memcpy(stamps, request->stamps, sizeof request->stamps);
    ligi_mesh_leave(mesh);
    return status;
}
