#include "mesh/device/graph_slots.h"

#include "base/error.h"
#include "mesh/mesh.h"
#include "mesh/mesh_respond.h"
#include "mesh/mesh_worker.h"
#include "net/progress.h"
#include "tensor/cuda/cuda_work.h"

#include <stdlib.h>
#include <string.h>

/* Values of `turn`: the graph writes GO, the courier the others. CLOSED is in the upper half, where
 * the graph does not write, and is never removed: all replays continue, also those that are queued
 * when the mesh is closed. */
enum { TAKEN = 0, GO = 1, DONE = 2 };
#define CLOSED (UINT64_C(1) << 32)
#define GRAPH_BIT (UINT64_C(1) << 62) /* handlers of requests never get that far */

int ligi_captured_is_handler(uint64_t handler)
{
    return (handler & GRAPH_BIT) != 0;
}

static void slot_free(ligi_captured_slot *slot)
{
    free(slot->tensors);
    free(slot->keys);
    free(slot->shapes);
    free(slot->pulls);
    free(slot);
}

/* The graphs may still be replayed by mistake: the memory of words and chunks stays
 * (device->stuck). */
void ligi_captured_free_all(ligi_mesh_device *device)
{
    ligi_captured_slot *slot = device->slots;
    device->slots = NULL;
    while (slot) {
        ligi_captured_slot *next = slot->next;
        ligi_arena_chunk_drop(slot->chunk);
        slot_free(slot);
        slot = next;
    }
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + LIGI_SPAN_ALIGNMENT - 1) & ~(LIGI_SPAN_ALIGNMENT - 1);
}

static int needs_copy(const ligi_mesh_device *device, const lig_tensor *tensor)
{
    uint32_t arena;
    uint64_t offset;
    return tensor->memory != LIG_MEMORY_HOST && tensor->bytes > 0 &&
           !ligi_arena_heap_find(device->memory, tensor->data, tensor->bytes, &arena, &offset);
}

/* Copies the descriptions, and gives tensors outside of the arena a place in the chunk. */
static lig_status fill_slot(ligi_captured_slot *slot, const lig_tensor *tensors, size_t count,
                            size_t *used)
{
    size_t at = slot->asked.push_count + slot->asked.pull_count;
    for (size_t i = 0; i < count; i++) {
        lig_tensor *own = &slot->tensors[at + i];
        int64_t *shape = slot->shapes + (at + i) * LIG_MESH_NDIM_MAX;
        if (tensors[i].strides && !lig_tensor_contiguous(&tensors[i]))
            return lig_fail(LIG_E_UNSUPPORTED, "a captured call needs contiguous tensors");
        *own = tensors[i];
        memcpy(shape, tensors[i].shape, tensors[i].ndim * sizeof *shape);
        own->shape = shape;
        own->strides = NULL;
        if (!needs_copy(slot->device, own))
            continue;
        own->data = slot->chunk->data + *used;
        *used += rounded(own->bytes);
    }
    return LIG_OK;
}

static lig_status reserve(ligi_captured_slot *slot, size_t count, uint64_t bytes)
{
    LIG_TRY(ligi_calloc(&slot->tensors, count + 1, sizeof *slot->tensors, "a graph"));
    LIG_TRY(ligi_calloc(&slot->keys, count + 1, sizeof *slot->keys, "a graph"));
    LIG_TRY(ligi_calloc(&slot->pulls, count + 1, sizeof *slot->pulls, "a graph"));
    LIG_TRY(ligi_calloc(&slot->shapes, (count + 1) * LIG_MESH_NDIM_MAX, sizeof *slot->shapes,
                        "a graph"));
    LIG_TRY(ligi_mesh_device_word(slot->device, &slot->turn));
    __atomic_store_n(slot->turn, DONE, __ATOMIC_RELAXED);
    return bytes > 0 ? ligi_arena_heap_take(slot->device->memory, bytes, &slot->chunk) : LIG_OK;
}

static uint64_t chunk_bytes(const ligi_mesh_device *device, const lig_tensor *tensors, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += needs_copy(device, &tensors[i]) ? rounded(tensors[i].bytes) : 0;
    return bytes;
}

/* The graph's part: tensors into the chunk when the call of the last replay has left it, then GO.
 * Memory operations, not a kernel: without MPS a kernel needs a switch of contexts. */
static lig_status capture_go(ligi_captured_slot *slot, const lig_tensor *tensors, size_t count,
                             void *stream)
{
    int32_t device = slot->device->number;
    uint64_t turn = ligi_mesh_device_address(slot->device, slot->turn);
    LIG_TRY(ligi_cuda_await_word(device, stream, turn, DONE));
    slot->in_graph = 1;
    for (size_t i = 0; i < count; i++) {
        ligi_cuda_move move = {slot->tensors[i].data, tensors[i].data, tensors[i].bytes};
        if (move.to != move.from)
            LIG_TRY(ligi_cuda_copy(device, stream, &move, 1));
    }
    return ligi_cuda_write_half(device, stream, turn, GO);
}

static lig_status make_slot(ligi_captured_slot *slot, const lig_mesh_request *asked, void *stream)
{
    size_t used = 0;
    uint64_t bytes = chunk_bytes(slot->device, asked->push, asked->push_count) +
                     chunk_bytes(slot->device, asked->pull, asked->pull_count);
    LIG_TRY(reserve(slot, asked->push_count + asked->pull_count, bytes));
    LIG_TRY(fill_slot(slot, asked->push, asked->push_count, &used));
    slot->asked.push_count = asked->push_count;
    LIG_TRY(fill_slot(slot, asked->pull, asked->pull_count, &used));
    slot->asked.pull_count = asked->pull_count;
    if (asked->push_count > 0)
        memcpy(slot->keys, asked->push_keys, asked->push_count * sizeof *slot->keys);
    if (asked->pull_count > 0)
        memcpy(slot->keys + asked->push_count, asked->pull_keys,
               asked->pull_count * sizeof *slot->keys);
    slot->asked.push = slot->tensors;
    slot->asked.push_keys = slot->keys;
    slot->asked.pull = slot->tensors + asked->push_count;
    slot->asked.pull_keys = slot->keys + asked->push_count;
    for (size_t i = 0; i < asked->pull_count; i++)
        if (slot->asked.pull[i].data != asked->pull[i].data)
            slot->pulls[slot->pull_count++] = (ligi_cuda_move){
                asked->pull[i].data, slot->asked.pull[i].data, asked->pull[i].bytes};
    return capture_go(slot, asked->push, asked->push_count, stream);
}

/* A failed capture may be replayed: its words and its chunk stay allocated. */
static void abandon(ligi_captured_slot *slot)
{
    ligi_mesh_device *device = slot->device;
    if (slot->in_graph) {
        ligi_arena_chunk_abandon(slot->chunk);
        device->stuck = 1;
    } else {
        ligi_arena_chunk_drop(slot->chunk);
        if (slot->turn) /* the next user waits for more than it holds */
            __atomic_store_n(slot->turn, 0, __ATOMIC_RELAXED);
        ligi_mesh_device_word_give(device, slot->turn);
    }
    slot_free(slot);
}

void ligi_captured_ended(ligi_captured_slot *slot, lig_status status, const char *sentence)
{
    uint64_t turn = TAKEN; /* or CLOSED */
    if (status != LIG_OK)
        ligi_mesh_device_fail(slot->device, status, sentence);
    __atomic_compare_exchange_n(slot->turn, &turn, DONE, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void ligi_captured_close(ligi_mesh_device *device)
{
    for (ligi_captured_slot *slot = device->slots; slot; slot = slot->next)
        __atomic_fetch_or(slot->turn, CLOSED, __ATOMIC_RELEASE);
}

static void replay(ligi_captured_slot *slot)
{
    lig_mesh *mesh = slot->device->mesh;
    lig_status status = slot->responds ? ligi_server_replay(mesh, slot)
                                       : ligi_worker_replay(mesh, &slot->asked, slot);
    if (status == LIG_OK)
        return;
    ligi_net_lock(mesh->session.net);
    ligi_captured_ended(slot, status, lig_error_text());
    ligi_net_unlock(mesh->session.net);
}

/* Makes the calls that graphs ask for; without locks. 1 if there were any. */
static int visit(void *context)
{
    ligi_mesh_device *device = context;
    int some = 0;
    ligi_captured_slot *slot = __atomic_load_n(&device->slots, __ATOMIC_ACQUIRE);
    for (; slot; slot = slot->next) {
        uint64_t turn = GO;
        if (__atomic_load_n(slot->turn, __ATOMIC_RELAXED) != GO ||
            !__atomic_compare_exchange_n(slot->turn, &turn, TAKEN, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        replay(slot);
        some = 1;
    }
    return some;
}

static lig_status add_slot(ligi_mesh_device *device, const lig_mesh_request *asked, void *stream,
                           ligi_captured_slot *slot)
{
    slot->device = device;
    lig_status status = make_slot(slot, asked, stream);
    if (status != LIG_OK) {
        abandon(slot);
        return status;
    }
    slot->handler = GRAPH_BIT | device->slot_count++;
    slot->next = device->slots;
    device->stuck = 1;
    if (slot->next == NULL) {
        device->tasks.visit = visit;
        device->tasks.context = device;
        ligi_courier_poll(&device->tasks, 1);
    }
    __atomic_store_n(&device->slots, slot, __ATOMIC_RELEASE);
    return LIG_OK;
}

lig_status ligi_captured_push_pull(ligi_mesh_device *device, const lig_mesh_request *asked,
                                   void *stream, uint64_t *handler)
{
    ligi_captured_slot *slot;
    LIG_TRY(ligi_calloc(&slot, 1, sizeof *slot, "a graph"));
    LIG_TRY(add_slot(device, asked, stream, slot));
    *handler = slot->handler;
    return LIG_OK;
}

lig_status ligi_captured_respond(ligi_mesh_device *device, uint32_t worker,
                                 const lig_tensor *tensors, size_t count, void *stream)
{
    ligi_captured_slot *slot;
    lig_mesh_request asked = {.push = tensors, .push_count = count};
    uint64_t *keys = NULL;
    LIG_TRY(ligi_calloc(&keys, count + 1, sizeof *keys, "a graph"));
    asked.push_keys = keys;
    lig_status status = ligi_calloc(&slot, 1, sizeof *slot, "a graph");
    if (status == LIG_OK) {
        slot->responds = 1;
        slot->worker = worker;
        status = add_slot(device, &asked, stream, slot);
    }
    free(keys);
    return status;
}

lig_status ligi_captured_wait(ligi_mesh_device *device, uint64_t handler, void *stream)
{
    const ligi_captured_slot *slot = device ? device->slots : NULL;
    int capturing = 0;
    while (slot && slot->handler != handler)
        slot = slot->next;
    if (slot == NULL || slot->responds)
        return lig_fail(LIG_E_NOTFOUND, "handler %llu was never returned by a captured push_pull",
                        (unsigned long long)handler);
    LIG_TRY(ligi_cuda_capturing(device->number, stream, &capturing));
    if (!capturing)
        return lig_fail(LIG_E_INVALID,
                        "handler %llu belongs to a graph: wait for it in the capture",
                        (unsigned long long)handler);
    uint64_t turn = ligi_mesh_device_address(device, slot->turn);
    LIG_TRY(ligi_cuda_await_word(device->number, stream, turn, DONE));
    return ligi_cuda_copy(device->number, stream, slot->pulls, slot->pull_count);
}
