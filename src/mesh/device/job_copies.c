#include "mesh/device/job_copies.h"

#include "base/error.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh_server.h"
#include "tensor/cuda/cuda_work.h"
#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + LIGI_SPAN_ALIGNMENT - 1) & ~(LIGI_SPAN_ALIGNMENT - 1);
}

/* --- life --- */

static void end_copies(ligi_queue *queue, ligi_job *job)
{
    ligi_job_copies *copies = job->copies;
    ligi_arena_chunk_drop(copies->landed);
    ligi_arena_chunk_drop(copies->answer);
    ligi_imports_drop(copies->imports);
    copies->landed = copies->answer = NULL;
    copies->imports = NULL;
    copies->failure.status = LIG_OK;
    copies->count = 0;
    queue->device_bytes -= copies->bytes;
    copies->bytes = 0;
}

static void free_copies(ligi_job_copies *copies)
{
    free(copies->list);
    free(copies);
}

static int copy_now(void *context, void *to, const void *from, uint64_t bytes)
{
    const lig_mesh *mesh = context;
    const ligi_mesh_device *device = mesh->device;
    ligi_cuda_move move = {to, from, bytes};
    return ligi_cuda_copy(device->number, device->in, &move, 1) == LIG_OK &&
           ligi_cuda_synchronize(device->number, device->in) == LIG_OK;
}

static lig_status get_copies(ligi_party *party, ligi_job *job)
{
    lig_mesh *mesh = party->mesh;
    ligi_mesh_device *device;
    int32_t number = mesh->device ? mesh->device->number : mesh->receive_device;
    LIG_TRY(ligi_mesh_device_open(mesh, number, &device));
    mesh->inbox.end_copies = end_copies;
    mesh->inbox.free_copies = free_copies;
    mesh->inbox.copy = copy_now;
    mesh->inbox.context = mesh;
    mesh->inbox.device = number;
    if (job->copies == NULL)
        LIG_TRY(ligi_calloc(&job->copies, 1, sizeof *job->copies, "a request"));
    job->copies->party = party;
    job->copies->job = job;
    return LIG_OK;
}

static lig_status add_copy(ligi_job_copies *copies, void *to, const void *from, uint64_t bytes)
{
    LIG_TRY(ligi_grow(&copies->list, &copies->room, copies->count + 1, sizeof *copies->list,
                      "a request"));
    copies->list[copies->count++] = (ligi_cuda_move){to, from, bytes};
    return LIG_OK;
}

static void on_copied(ligi_courier_task *task, lig_status status)
{
    ligi_job_copies *copies = (ligi_job_copies *)task;
    if (task->word)
        ligi_mesh_device_word_give(copies->party->mesh->device, task->word);
    task->word = NULL;
    if (task->order)
        task->order->count--;
    task->order = NULL;
    if (copies->graph)
        ligi_captured_ended(copies->graph, status, lig_error_text());
    copies->graph = NULL;
    ligi_imports_drop(copies->imports);
    copies->imports = NULL;
    copies->count = 0;
    if (copies->failure.status != LIG_OK)
        status = ligi_failure_publish(&copies->failure);
    ligi_server_copied(copies->party, copies->job, status);
}

/* A response failed after some of its copies were queued on a stream of the caller, which may wait
 * for what arrives only after this call, and is not waited for. They write to the worker's memory
 * when the stream reaches them; only then is the worker notified. If the stream cannot signal that
 * either, the courier ends the task when the device has failed. */
static void refuse_later(ligi_job_copies *copies, void *stream, const ligi_failure *failure)
{
    ligi_mesh_device *device = copies->party->mesh->device;
    ligi_courier_task *task = &copies->task;
    if (ligi_mesh_device_word(device, &task->word) != LIG_OK)
        return; /* never: the copies had one */
    task->least = ++device->ticket;
    (void)ligi_cuda_write_word(device->number, stream, ligi_mesh_device_address(device, task->word),
                               task->least);
    ligi_courier_add(&device->tasks, task);
    copies->failure = *failure;
    copies->job->copying = 1;
}

/* Queues what is listed; the job stays until it has ended. */
static lig_status start(ligi_job_copies *copies, ligi_on_stream on, void *stream)
{
    ligi_mesh_device *device = copies->party->mesh->device;
    lig_status status = LIG_OK;
    copies->task.done = on_copied;
    copies->task.word = NULL;
    if (copies->count > 0)
        status = ligi_mesh_device_copy(device, stream, copies->list, copies->count, &copies->task);
    else
        ligi_courier_add(&device->tasks, &copies->task); /* it only waits for its turn */
    if (status == LIG_OK) {
        copies->job->copying = 1;
        return LIG_OK;
    }
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    if (!on.given)
        (void)ligi_cuda_synchronize(device->number, stream);
    else if (copies->task.queued > 0)
        refuse_later(copies, stream, &failure);
    copies->count = 0;
    return ligi_failure_publish(&failure);
}

/* --- receiving --- */

int ligi_job_needs_copies(const lig_mesh *mesh, const ligi_job *job)
{
    const ligi_queue *queue = &mesh->inbox.queues[job->worker];
    for (uint32_t i = 0; i < job->push_count; i++) {
        const ligi_registered_buffer *buffer =
            ligi_registered_find(&queue->places, job->pieces.keys[i]);
        uint32_t kind = job->pieces.places[i].kind;
        if (buffer ? buffer->memory != LIG_MEMORY_HOST || kind == LIGI_PLACE_ARENA
                   : kind == LIGI_PLACE_ARENA ||
                         (kind == LIGI_PLACE_DEVICE && mesh->receive_memory != LIG_MEMORY_HOST))
            return 1;
    }
    return 0;
}

/* Where one tensor comes from and goes to. */
typedef struct route {
    ligi_registered_buffer *buffer; /* or NULL */
    int parked;                     /* the buffer is in use: the tensor waits elsewhere */
    uint8_t *lent;                  /* in the worker's arena; NULL: it is in the payload */
    int to_device;                  /* the memory that it waits in, or ends in */
} route;

static lig_status find_route(ligi_party *party, ligi_job *job, uint32_t i, route *found)
{
    const lig_mesh *mesh = party->mesh;
    const ligi_place *place = &job->pieces.places[i];
    const lig_tensor *tensor = &job->pieces.tensors[i];
    ligi_registered_buffer *buffer =
        ligi_registered_find(&mesh->inbox.queues[job->worker].places, job->pieces.keys[i]);
    *found = (route){.buffer = buffer};
    if (place->kind == LIGI_PLACE_ARENA) {
        found->lent = ligi_arenas_find(&party->arenas, place, tensor->bytes);
        if (found->lent == NULL)
            return lig_fail(LIG_E_CORRUPT,
                            "protocol error: worker %u referred to memory that it has not shared",
                            party->peer.index);
    }
    LIG_TRY(ligi_registered_fits(buffer, tensor->bytes));
    /* A second tensor with the same key in one request has to wait, too. */
    found->parked = buffer && (buffer->holder || buffer->parked || buffer->claim == job->number);
    if (buffer)
        found->to_device = buffer->memory != LIG_MEMORY_HOST;
    else
        found->to_device =
            place->kind != LIGI_PLACE_HOST && mesh->receive_memory != LIG_MEMORY_HOST;
    return LIG_OK;
}

typedef struct sizes {
    uint64_t host, device, pinned;
} sizes;

/* A tensor needs separate memory unless it has a free buffer or stays in the arena. */
static int needs_memory(const route *way)
{
    return way->buffer ? way->parked && !way->lent : !way->lent;
}

static lig_status measure(ligi_party *party, ligi_job *job, sizes *need)
{
    *need = (sizes){0};
    for (uint32_t i = 0; i < job->push_count; i++) {
        route way;
        uint64_t bytes = rounded(job->pieces.tensors[i].bytes);
        LIG_TRY(find_route(party, job, i, &way));
        if (way.buffer && !way.parked)
            way.buffer->claim = job->number;
        if (way.to_device && !way.lent)
            need->pinned += bytes;
        if (needs_memory(&way))
            *(way.to_device ? &need->device : &need->host) += bytes;
    }
    for (uint32_t i = 0; i < job->push_count; i++) { /* claims are made again when it is placed */
        ligi_registered_buffer *buffer = ligi_registered_find(
            &party->mesh->inbox.queues[job->worker].places, job->pieces.keys[i]);
        if (buffer && buffer->claim == job->number)
            buffer->claim = 0;
    }
    return LIG_OK;
}

static lig_status take_memory(ligi_party *party, ligi_job *job, const sizes *need,
                              ligi_arena_chunk **device_chunk)
{
    lig_mesh *mesh = party->mesh;
    ligi_queue *queue = &mesh->inbox.queues[job->worker];
    ligi_job_copies *copies = job->copies;
    LIG_TRY(ligi_block_pool_take(queue->pool, need->host, &job->block));
    uint64_t bytes = need->device + need->pinned, most = ligi_block_pool_limit(queue->pool);
    if (bytes > most || queue->device_bytes > most - bytes)
        return lig_fail(LIG_E_LIMIT,
                        "receive_bytes exceeded: %llu bytes of requests with device tensors are "
                        "unanswered, %llu more arrived, and the limit per worker is %llu",
                        (unsigned long long)queue->device_bytes, (unsigned long long)bytes,
                        (unsigned long long)most);
    if (need->pinned > 0)
        LIG_TRY(ligi_arena_heap_take(mesh->device->pinned, need->pinned, &copies->landed));
    if (need->device > 0) {
        LIG_TRY(ligi_arena_heap_take(mesh->device->memory, need->device, device_chunk));
        ligi_block_keep(job->block, *device_chunk, (void (*)(void *))ligi_arena_chunk_drop);
    }
    copies->bytes = bytes;
    queue->device_bytes += bytes;
    if (party->arenas.imports) {
        ligi_imports_hold(party->arenas.imports);
        ligi_block_keep(job->block, party->arenas.imports, (void (*)(void *))ligi_imports_drop);
    }
    return LIG_OK;
}

typedef struct cursors {
    uint8_t *host, *device, *pinned;
} cursors;

static uint8_t *advance(uint8_t **at, uint64_t bytes)
{
    uint8_t *here = *at;
    *at += rounded(bytes);
    return here;
}

/* Sets the tensor's memory; lists what has to be copied after the payload has landed. */
static lig_status place(ligi_party *party, ligi_job *job, uint32_t i, cursors *at,
                        ligi_landing *landing)
{
    lig_tensor *tensor = &job->pieces.tensors[i];
    uint64_t bytes = tensor->bytes;
    route way;
    LIG_TRY(find_route(party, job, i, &way));
    job->places[i] = way.buffer;
    int to_device = way.to_device;
    if (way.buffer && !way.parked) {
        way.buffer->claim = job->number;
        way.buffer->holder = job;
        tensor->data = way.buffer->data;
        if (way.lent)
            LIG_TRY(add_copy(job->copies, tensor->data, way.lent, bytes));
    } else if (way.lent) {
        tensor->data = way.lent;
        to_device = 1;
    } else {
        tensor->data = advance(to_device ? &at->device : &at->host, bytes);
    }
    if (way.parked) {
        way.buffer->parked++;
        job->parked++;
    }
    tensor->memory = to_device ? LIG_MEMORY_CUDA : LIG_MEMORY_HOST;
    tensor->device = to_device ? party->mesh->device->number : 0;
    party->mesh->stats.bytes_shared += way.lent && !way.buffer ? bytes : 0;
    if (way.lent || bytes == 0)
        return LIG_OK;
    uint8_t *lands = to_device ? advance(&at->pinned, bytes) : tensor->data;
    if (to_device)
        LIG_TRY(add_copy(job->copies, tensor->data, lands, bytes));
    job->iov[landing->count++] = (struct iovec){lands, bytes};
    return LIG_OK;
}

lig_status ligi_job_receive(ligi_party *party, ligi_job *job, ligi_landing *landing)
{
    sizes need;
    ligi_arena_chunk *chunk = NULL;
    LIG_TRY(get_copies(party, job));
    LIG_TRY(measure(party, job, &need));
    LIG_TRY(take_memory(party, job, &need, &chunk));
    cursors at = {job->block->data, chunk ? chunk->data : NULL,
                  job->copies->landed ? job->copies->landed->data : NULL};
    for (uint32_t i = 0; i < job->push_count; i++)
        LIG_TRY(place(party, job, i, &at, landing));
    landing->iov = job->iov;
    landing->token = job;
    return LIG_OK;
}

/* A request does not overtake one whose tensors are still being copied. */
lig_status ligi_job_raise(ligi_party *party, ligi_job *job, int *pending)
{
    ligi_queue *queue = &party->mesh->inbox.queues[job->worker];
    int copies = job->copies && job->copies->count > 0;
    *pending = copies || (queue->raised && queue->raised->count > 0);
    if (!*pending)
        return LIG_OK;
    if (queue->raised == NULL)
        LIG_TRY(ligi_calloc(&queue->raised, 1, sizeof *queue->raised, "a request"));
    LIG_TRY(get_copies(party, job));
    job->copies->task.order = queue->raised;
    LIG_TRY(start(job->copies, (ligi_on_stream){0}, party->mesh->device->in));
    queue->raised->count++;
    return LIG_OK;
}

/* --- responding --- */

int ligi_job_answer_needs_copies(const ligi_job *job, const lig_tensor *tensors)
{
    for (uint32_t i = 0; i < job->pull_count; i++)
        if (tensors[i].memory != LIG_MEMORY_HOST ||
            job->pieces.places[job->push_count + i].kind == LIGI_PLACE_ARENA)
            return 1;
    return 0;
}

static lig_status take_answer(ligi_job *job, const lig_tensor *tensors, ligi_mesh_device *device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->pull_count; i++)
        if (tensors[i].memory != LIG_MEMORY_HOST &&
            job->pieces.places[job->push_count + i].kind != LIGI_PLACE_ARENA)
            bytes += rounded(tensors[i].bytes);
    return bytes == 0 ? LIG_OK : ligi_arena_heap_take(device->pinned, bytes, &job->copies->answer);
}

/* One tensor: into the worker's arena, or into the payload. */
static lig_status answer_one(ligi_party *party, ligi_job *job, uint32_t i, const lig_tensor *tensor,
                             const void *data, uint8_t **staged)
{
    const ligi_place *where = &job->pieces.places[job->push_count + i];
    if (tensor->bytes == 0)
        return LIG_OK;
    if (where->kind == LIGI_PLACE_ARENA) {
        void *to = ligi_arenas_find(&party->arenas, where, tensor->bytes);
        if (to == NULL)
            return lig_fail(LIG_E_PEER, "worker %u referred to memory that it has not shared",
                            party->peer.index);
        return add_copy(job->copies, to, data, tensor->bytes);
    }
    if (tensor->memory != LIG_MEMORY_HOST) {
        void *to = advance(staged, tensor->bytes);
        LIG_TRY(add_copy(job->copies, to, data, tensor->bytes));
        data = to;
    }
    job->iov[job->entries++] = (struct iovec){(void *)(uintptr_t)data, tensor->bytes};
    return LIG_OK;
}

static lig_status answer_all(ligi_party *party, ligi_job *job, const lig_tensor *tensors,
                             ligi_on_stream on, uint8_t *packed)
{
    ligi_mesh_device *device = party->mesh->device;
    LIG_TRY(take_answer(job, tensors, device));
    uint8_t *staged = job->copies->answer ? job->copies->answer->data : NULL;
    for (uint32_t i = 0; i < job->pull_count; i++) {
        const void *data = tensors[i].data;
        if (!lig_tensor_contiguous(&tensors[i])) {
            lig_tensor_pack(&tensors[i], packed);
            data = packed;
            packed += ligi_block_aligned(tensors[i].bytes);
        }
        LIG_TRY(answer_one(party, job, i, &tensors[i], data, &staged));
    }
    if (party->arenas.imports && job->copies->imports == NULL) {
        ligi_imports_hold(party->arenas.imports);
        job->copies->imports = party->arenas.imports;
    }
    LIG_TRY(start(job->copies, on, on.given ? on.stream : device->out));
    job->copies->graph = on.graph;
    return LIG_OK;
}

lig_status ligi_job_answer(ligi_party *party, ligi_job *job, const lig_tensor *tensors,
                           ligi_on_stream on, uint8_t *packed)
{
    LIG_TRY(get_copies(party, job));
    job->copies->count = 0;
    job->entries = 0;
    lig_status status = answer_all(party, job, tensors, on, packed);
    if (status != LIG_OK && !job->copying) { /* another answer can follow */
        ligi_arena_chunk_drop(job->copies->answer);
        ligi_imports_drop(job->copies->imports);
        job->copies->answer = NULL;
        job->copies->imports = NULL;
        job->copies->count = 0;
    }
    return status;
}
