#include "mesh/device/exchange.h"

#include "base/error.h"
#include "mesh/device/arena_offers.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh.h"
#include "mesh/mesh_worker.h"
#include "tensor/cuda/cuda_work.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + LIGI_SPAN_ALIGNMENT - 1) & ~(LIGI_SPAN_ALIGNMENT - 1);
}

static int on_device(const lig_tensor *tensor)
{
    return tensor->memory != LIG_MEMORY_HOST && tensor->bytes > 0;
}

/* --- life --- */

static void exchange_free(ligi_exchange *exchange)
{
    free(exchange->lent);
    free(exchange->heads);
    free(exchange->head_bytes);
    free(exchange->iov_host);
    free(exchange->places);
    free(exchange->moves);
    free(exchange->pulls);
    free(exchange);
}

static lig_status exchange_create(ligi_mesh_device *device, ligi_exchange **out)
{
    ligi_exchange *made;
    uint32_t servers = device->mesh->server_count;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a request"));
    lig_status status = ligi_calloc(&made->lent, servers, 1, "a request");
    if (status == LIG_OK)
        status = ligi_calloc(&made->head_bytes, servers, sizeof *made->head_bytes, "a request");
    if (status != LIG_OK) {
        exchange_free(made);
        return status;
    }
    made->device = device;
    *out = made;
    return LIG_OK;
}

static void let_go(ligi_exchange *exchange)
{
    ligi_mesh_device *device = exchange->device;
    if (exchange->request || exchange->pushing || exchange->filling || exchange->lent_count > 0)
        return;
    ligi_exchange **at = &device->exchanges;
    while (*at != exchange)
        at = &(*at)->next;
    *at = exchange->next;
    ligi_arena_chunk_drop(exchange->shared);
    ligi_arena_chunk_drop(exchange->staged);
    exchange->shared = exchange->staged = NULL;
    exchange->next = device->unused;
    device->unused = exchange;
}

void ligi_exchange_detach(ligi_exchange *exchange)
{
    exchange->request = NULL;
    let_go(exchange);
}

/* The request has ended and needs its exchange no more. */
static void part(ligi_exchange *exchange)
{
    if (exchange->request == NULL || exchange->request->state != LIGI_REQUEST_ENDED ||
        exchange->filling || !exchange->is_filled)
        return;
    exchange->request->exchange = NULL;
    ligi_exchange_detach(exchange);
}

void ligi_exchange_free_all(ligi_mesh_device *device)
{
    while (device->exchanges) {
        ligi_exchange *exchange = device->exchanges;
        device->exchanges = exchange->next;
        ligi_arena_chunk_drop(exchange->shared);
        ligi_arena_chunk_drop(exchange->staged);
        exchange_free(exchange);
    }
    while (device->unused) {
        ligi_exchange *exchange = device->unused;
        device->unused = exchange->next;
        exchange_free(exchange);
    }
}

void ligi_exchange_answered(lig_mesh *mesh, uint64_t serial, uint32_t server)
{
    for (ligi_exchange *it = mesh->device ? mesh->device->exchanges : NULL; it; it = it->next) {
        if (it->serial != serial)
            continue;
        it->lent_count -= it->lent[server];
        it->lent[server] = 0;
        let_go(it);
        return;
    }
}

void ligi_exchange_lost(lig_mesh *mesh, uint32_t server, int orderly)
{
    ligi_exchange *next = NULL;
    for (ligi_exchange *it = mesh->device ? mesh->device->exchanges : NULL; it; it = next) {
        next = it->next;
        if (!it->lent[server])
            continue;
        it->lent[server] = 0;
        it->lent_count--;
        if (!orderly) {
            ligi_arena_chunk_abandon(it->shared);
            it->shared = NULL;
        }
        let_go(it);
    }
}

/* --- making a request --- */

/* Bytes of `shared` and of `staged` that tensors need; those in an arena need none in `shared`. */
static void add_sizes(ligi_mesh_device *device, const lig_tensor *tensors, size_t count,
                      uint64_t *shared, uint64_t *staged)
{
    uint32_t arena;
    uint64_t offset;
    for (size_t i = 0; i < count; i++) {
        if (!on_device(&tensors[i]))
            continue;
        *staged += rounded(tensors[i].bytes);
        if (!ligi_arena_heap_find(device->memory, tensors[i].data, tensors[i].bytes, &arena,
                                  &offset))
            *shared += rounded(tensors[i].bytes);
    }
}

/* 1 if the server has opened the arenas of the chunk and of the tensors that are in one. */
static int has_arenas(const ligi_exchange *exchange, const ligi_party *party,
                      const lig_tensor *tensors, size_t count)
{
    uint32_t arena;
    uint64_t offset;
    if (exchange->shared && !(party->arenas.opened >> exchange->shared->arena & 1))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (on_device(&tensors[i]) &&
            ligi_arena_heap_find(exchange->device->memory, tensors[i].data, tensors[i].bytes,
                                 &arena, &offset) &&
            !(party->arenas.opened >> arena & 1))
            return 0;
    return 1;
}

/* Decides which servers use the arena, and takes the memory. */
static lig_status take_memory(ligi_exchange *exchange, const lig_mesh_request *asked)
{
    ligi_mesh_device *device = exchange->device;
    lig_mesh *mesh = device->mesh;
    uint64_t shared = 0, staged = 0;
    uint32_t candidates = 0, lent = 0;
    size_t k = asked->pull_count / mesh->server_count;
    add_sizes(device, asked->push, asked->push_count, &shared, &staged);
    add_sizes(device, asked->pull, asked->pull_count, &shared, &staged);
    for (uint32_t s = 0; s < mesh->server_count; s++)
        candidates += mesh->parties[s].arenas.opened != 0;
    /* Without room on the device everything goes through host memory. */
    if (candidates > 0 && shared > 0 &&
        ligi_arena_heap_take(device->memory, shared, &exchange->shared) != LIG_OK)
        candidates = 0;
    for (uint32_t s = 0; s < mesh->server_count && candidates > 0; s++) {
        const ligi_party *party = &mesh->parties[s];
        exchange->lent[s] = party->arenas.opened != 0 &&
                            has_arenas(exchange, party, asked->push, asked->push_count) &&
                            has_arenas(exchange, party, asked->pull + s * k, k);
        lent += exchange->lent[s];
    }
    exchange->lent_count = lent;
    for (uint32_t s = 0; s < mesh->server_count; s++)
        if (!exchange->lent[s])
            ligi_arena_offer(device, &mesh->parties[s]);
    if (lent == 0) {
        ligi_arena_chunk_drop(exchange->shared);
        exchange->shared = NULL;
    }
    return lent == mesh->server_count || staged == 0
               ? LIG_OK
               : ligi_arena_heap_take(device->pinned, staged, &exchange->staged);
}

/* Where the next tensors go in the two chunks. */
typedef struct cursor {
    uint64_t shared, staged;
} cursor;

/* The tensor's place in an arena, and its address there. */
static uint8_t *place_shared(ligi_exchange *exchange, const lig_tensor *tensor, ligi_place *place,
                             cursor *at)
{
    const ligi_arena_chunk *chunk = exchange->shared;
    place->kind = LIGI_PLACE_ARENA;
    if (ligi_arena_heap_find(exchange->device->memory, tensor->data, tensor->bytes, &place->arena,
                             &place->offset))
        return tensor->data;
    uint8_t *data = chunk->data + at->shared;
    place->arena = chunk->arena;
    place->offset = chunk->span.offset + at->shared;
    at->shared += rounded(tensor->bytes);
    return data;
}

static uint8_t *place_staged(ligi_exchange *exchange, const lig_tensor *tensor, cursor *at)
{
    uint8_t *data = exchange->staged->data + at->staged;
    at->staged += rounded(tensor->bytes);
    return data;
}

static void copy_out(ligi_exchange *exchange, void *to, const lig_tensor *tensor)
{
    if (to != tensor->data)
        exchange->moves[exchange->move_count++] = (ligi_cuda_move){to, tensor->data, tensor->bytes};
}

/* Lists the copies of pushed tensors, and the payloads for both kinds of servers. Strided
 * tensors of host memory are in the request's iov already, packed. */
static void push_all(ligi_exchange *exchange, const lig_mesh_request *asked, cursor *at)
{
    struct iovec *iov = exchange->request->iov;
    uint32_t read = 0, entries = 0;
    uint32_t staged_count = exchange->device->mesh->server_count - exchange->lent_count;
    exchange->host_entries = 0;
    for (size_t i = 0; i < asked->push_count; i++) {
        const lig_tensor *tensor = &asked->push[i];
        exchange->places[i] = (ligi_place){.kind = LIGI_PLACE_HOST};
        if (tensor->bytes == 0)
            continue;
        struct iovec entry = iov[read++];
        if (!on_device(tensor)) {
            exchange->iov_host[exchange->host_entries++] = entry;
        } else {
            if (exchange->lent_count > 0)
                copy_out(exchange, place_shared(exchange, tensor, &exchange->places[i], at),
                         tensor);
            if (staged_count == 0)
                continue;
            entry.iov_base = place_staged(exchange, tensor, at);
            copy_out(exchange, entry.iov_base, tensor);
        }
        iov[entries++] = entry;
    }
    exchange->push_entries = entries;
}

static void add_pull(ligi_exchange *exchange, const lig_tensor *tensor, const uint8_t *from)
{
    if (from != tensor->data)
        exchange->pulls[exchange->pull_count++] =
            (ligi_cuda_move){tensor->data, from, tensor->bytes};
}

/* One server's pulls: places, the payload's destination, and the copies that follow it. */
static void pull_all(ligi_exchange *exchange, const lig_mesh_request *asked, uint32_t server,
                     ligi_place *places, cursor *at)
{
    ligi_share *share = &exchange->request->shares[server];
    size_t k = exchange->request->pull_count;
    uint32_t read = 0, entries = 0;
    for (size_t j = 0; j < k; j++) {
        const lig_tensor *tensor = &asked->pull[server * k + j];
        places[j] = (ligi_place){.kind = LIGI_PLACE_HOST};
        if (tensor->bytes == 0)
            continue;
        struct iovec entry = share->iov[read++];
        if (on_device(tensor)) {
            places[j].kind = LIGI_PLACE_DEVICE;
            if (exchange->lent[server]) {
                add_pull(exchange, tensor, place_shared(exchange, tensor, &places[j], at));
                share->bytes -= tensor->bytes;
                continue;
            }
            entry.iov_base = place_staged(exchange, tensor, at);
            add_pull(exchange, tensor, entry.iov_base);
        }
        share->iov[entries++] = entry;
    }
    share->iov_count = entries;
}

/* The message to one server, behind those of the servers before it. */
static lig_status write_head(ligi_exchange *exchange, const lig_mesh_request *asked,
                             uint32_t server, size_t *used, cursor *at)
{
    size_t k = exchange->request->pull_count, n = asked->push_count;
    ligi_place *pushed = exchange->places, *pulled = pushed + n;
    LIG_TRY(ligi_grow(&exchange->heads, &exchange->head_room, *used + LIGI_MESSAGE_BYTES_MAX, 1,
                      "a request"));
    pull_all(exchange, asked, server, pulled, at);
    ligi_place *own = pulled + k; /* the pushes as this server sees them */
    for (size_t i = 0; i < n; i++) {
        own[i] = pushed[i];
        if (on_device(&asked->push[i]) && !exchange->lent[server])
            own[i] = (ligi_place){.kind = LIGI_PLACE_DEVICE};
    }
    ligi_request_parts parts = {.serial = exchange->serial,
                                .push = asked->push,
                                .pull = asked->pull + server * k,
                                .push_keys = asked->push_keys,
                                .pull_keys = asked->pull_keys + server * k,
                                .push_places = own,
                                .pull_places = pulled,
                                .push_count = (uint32_t)n,
                                .pull_count = (uint32_t)k};
    size_t bytes = ligi_message_request(&parts, exchange->heads + *used);
    exchange->head_bytes[server] = (uint32_t)bytes;
    *used += bytes;
    return LIG_OK;
}

static lig_status reserve(ligi_exchange *exchange, const lig_mesh_request *asked)
{
    size_t k = exchange->request->pull_count;
    LIG_TRY(ligi_grow(&exchange->places, &exchange->place_room, 2 * asked->push_count + k + 1,
                      sizeof *exchange->places, "a request"));
    LIG_TRY(ligi_grow(&exchange->iov_host, &exchange->iov_host_room, asked->push_count + 1,
                      sizeof *exchange->iov_host, "a request"));
    LIG_TRY(ligi_grow(&exchange->moves, &exchange->move_room, 2 * asked->push_count + 1,
                      sizeof *exchange->moves, "a request"));
    return ligi_grow(&exchange->pulls, &exchange->pull_room, asked->pull_count + 1,
                     sizeof *exchange->pulls, "a request");
}

static void send_all(ligi_exchange *exchange)
{
    ligi_request *request = exchange->request;
    size_t at = 0;
    for (uint32_t s = 0; s < exchange->device->mesh->server_count; s++) {
        int lent = exchange->lent[s];
        ligi_worker_send(
            exchange->device->mesh, request, s,
            &(ligi_send){.head = exchange->heads + at,
                         .head_bytes = exchange->head_bytes[s],
                         .iov = lent ? exchange->iov_host : request->iov,
                         .count = lent ? exchange->host_entries : exchange->push_entries,
                         .flags = LIGI_SEND_LEND});
        at += exchange->head_bytes[s];
    }
}

static void forget_servers(ligi_exchange *exchange)
{
    memset(exchange->lent, 0, exchange->device->mesh->server_count);
    exchange->lent_count = 0;
}

/* The pushed tensors have been copied: the messages leave, unless the request has failed. */
static void on_pushed(ligi_courier_task *task, lig_status status)
{
    ligi_exchange *exchange = (ligi_exchange *)task;
    ligi_request *request = exchange->request;
    exchange->pushing = 0;
    if (task->order)
        task->order->count--;
    ligi_mesh_device_word_give(exchange->device, task->word);
    if (status != LIG_OK)
        ligi_request_fail(request, status, lig_error_text());
    if (request->status == LIG_OK)
        send_all(exchange);
    else
        forget_servers(exchange); /* the servers have not received it */
    ligi_worker_pushed(exchange->device->mesh, request);
}

static int has_device(const lig_mesh_request *asked)
{
    for (size_t i = 0; i < asked->push_count; i++)
        if (on_device(&asked->push[i]))
            return 1;
    return 0;
}

static lig_status fill_exchange(ligi_exchange *exchange, const lig_mesh_request *asked,
                                void *stream)
{
    cursor at = {0};
    size_t used = 0;
    LIG_TRY(reserve(exchange, asked));
    LIG_TRY(take_memory(exchange, asked));
    push_all(exchange, asked, &at);
    for (uint32_t s = 0; s < exchange->device->mesh->server_count; s++)
        LIG_TRY(write_head(exchange, asked, s, &used, &at));
    exchange->pushed.done = on_pushed;
    exchange->pushed.order = exchange->graph ? NULL : &exchange->device->pushes;
    if (exchange->move_count > 0 || (exchange->has_stream && has_device(asked)))
        return ligi_mesh_device_copy(exchange->device, stream, exchange->moves,
                                     exchange->move_count, &exchange->pushed);
    exchange->pushed.word = NULL; /* it only waits for its turn */
    exchange->at_once = exchange->graph || exchange->device->pushes.count == 0;
    if (!exchange->at_once)
        ligi_courier_add(&exchange->device->tasks, &exchange->pushed);
    return LIG_OK;
}

/* Copies may be queued on a stream that is not asked any further. One of the caller's may wait for
 * an answer that arrives only after this call: it is not waited for, and the memory is given up. */
static void abandon_copies(ligi_exchange *exchange, ligi_on_stream on, void *stream)
{
    if (!on.given) {
        (void)ligi_cuda_synchronize(exchange->device->number, stream);
        return;
    }
    ligi_arena_chunk_abandon(exchange->shared);
    ligi_arena_chunk_abandon(exchange->staged);
    exchange->shared = exchange->staged = NULL;
}

lig_status ligi_exchange_begin(ligi_mesh_device *device, const lig_mesh_request *asked,
                               ligi_on_stream on, ligi_request *request)
{
    ligi_exchange *exchange = device->unused;
    void *stream = on.given ? on.stream : device->out;
    if (exchange)
        device->unused = exchange->next;
    else
        LIG_TRY(exchange_create(device, &exchange));
    exchange->next = device->exchanges;
    device->exchanges = exchange;
    exchange->request = request;
    exchange->serial = request->serial;
    exchange->pull_count = 0;
    exchange->is_filled = 0;
    exchange->ack = NULL;
    exchange->graph = on.graph;
    exchange->has_stream = on.given;
    exchange->at_once = 0;
    exchange->move_count = 0;
    forget_servers(exchange);
    lig_status status = fill_exchange(exchange, asked, stream);
    if (status != LIG_OK) {
        ligi_failure failure;
        ligi_failure_take(&failure, status);
        abandon_copies(exchange, on, stream);
        forget_servers(exchange);
        ligi_exchange_detach(exchange);
        return ligi_failure_publish(&failure);
    }
    exchange->pushing = 1;
    if (exchange->pushed.order)
        exchange->pushed.order->count++;
    exchange->is_filled = exchange->pull_count == 0;
    request->exchange = exchange;
    return LIG_OK;
}

void ligi_exchange_start(ligi_exchange *exchange)
{
    if (exchange->at_once)
        on_pushed(&exchange->pushed, LIG_OK);
}

/* --- the answer --- */

static void on_filled(ligi_courier_task *task, lig_status status)
{
    ligi_exchange *exchange = (ligi_exchange *)((uint8_t *)task - offsetof(ligi_exchange, filled));
    ligi_mesh_device *device = exchange->device;
    exchange->filling = 0;
    exchange->is_filled = 1;
    ligi_mesh_device_word_give(device, task->word);
    ligi_mesh_device_word_give(device, exchange->ack);
    if (exchange->ack)
        ligi_courier_poll(&device->tasks, -1);
    exchange->ack = NULL;
    if (exchange->graph)
        ligi_captured_ended(exchange->graph, status, lig_error_text());
    if (status != LIG_OK) {
        ligi_mesh_device_fail(device, status, lig_error_text());
        ligi_worker_unfilled(exchange->request, status, lig_error_text());
    }
    part(exchange);
}

/* A stream that waits for the request's end. */
static lig_status await_end(ligi_exchange *exchange, void *stream)
{
    ligi_mesh_device *device = exchange->device;
    LIG_TRY(ligi_mesh_device_word(device, &exchange->ack));
    exchange->ack_least = ++device->ticket;
    lig_status status =
        ligi_cuda_await_word(device->number, stream,
                             ligi_mesh_device_address(device, exchange->ack), exchange->ack_least);
    if (status != LIG_OK) {
        ligi_mesh_device_word_give(device, exchange->ack);
        exchange->ack = NULL;
        return status;
    }
    ligi_courier_poll(&device->tasks, 1); /* a thread must receive the response */
    return LIG_OK;
}

lig_status ligi_exchange_fill(ligi_exchange *exchange, ligi_on_stream on)
{
    ligi_mesh_device *device = exchange->device;
    void *stream = on.given ? on.stream : device->in;
    if (exchange->filling ||
        (exchange->is_filled && exchange->request->state == LIGI_REQUEST_ENDED))
        return LIG_OK;
    if (exchange->request->state != LIGI_REQUEST_ENDED)
        LIG_TRY(await_end(exchange, stream));
    exchange->filled.done = on_filled;
    lig_status status = ligi_mesh_device_copy(device, stream, exchange->pulls, exchange->pull_count,
                                              &exchange->filled);
    if (status == LIG_OK) {
        exchange->filling = 1;
        return LIG_OK;
    }
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    abandon_copies(exchange, on, stream);
    if (exchange->ack) { /* the stream continues, and may read the word later: it stays allocated */
        __atomic_store_n(exchange->ack, exchange->ack_least, __ATOMIC_RELEASE);
        exchange->ack = NULL;
        ligi_courier_poll(&device->tasks, -1);
    }
    return ligi_failure_publish(&failure);
}

/* Only the request's graph waits for it, and continues when the tensors are filled. */
static void end_graph(ligi_exchange *exchange)
{
    ligi_request *request = exchange->request;
    request->waited = 1;
    exchange->device->mesh->outbox.unwaited--;
    lig_status status = request->status;
    const char *sentence = request->sentence ? request->sentence : "a request failed";
    if (!exchange->is_filled) {
        status = ligi_exchange_fill(exchange, (ligi_on_stream){0});
        if (status == LIG_OK)
            return;
        sentence = lig_error_text();
        exchange->is_filled = 1;
    }
    ligi_captured_ended(exchange->graph, status, sentence);
}

void ligi_exchange_ended(ligi_request *request)
{
    ligi_exchange *exchange = request->exchange;
    if (exchange->ack) {
        if (request->status != LIG_OK)
            ligi_mesh_device_fail(exchange->device, request->status,
                                  request->sentence ? request->sentence : "a request failed");
        __atomic_store_n(exchange->ack, exchange->ack_least, __ATOMIC_RELEASE);
    }
    if (request->status != LIG_OK)
        exchange->is_filled = 1;
    if (exchange->graph)
        end_graph(exchange);
    part(exchange);
}
