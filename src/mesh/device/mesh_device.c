#include "mesh/device/mesh_device.h"

#include "base/error.h"
#include "mesh/device/exchange.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh.h"
#include "net/progress.h"
#include "tensor/cuda/cuda_work.h"
#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BYTES ((uint64_t)LIGI_WORDS * sizeof(uint64_t))
#define PATIENCE_NS INT64_C(10000000000)

static void device_free(ligi_mesh_device *device, int keep)
{
    ligi_exchange_free_all(device);
    ligi_captured_free_all(device);
    ligi_block_pool_close(device->holds);
    ligi_arena_heap_close(device->memory, keep);
    ligi_arena_heap_close(device->pinned, keep);
    if (!keep) {
        ligi_cuda_stream_destroy(device->number, device->in);
        ligi_cuda_stream_destroy(device->number, device->out);
        ligi_cuda_unpin(device->number, device->words, WORD_BYTES);
    }
    ligi_courier_fini(&device->tasks);
    free(device->free_words);
    free(device);
}

static lig_status make_parts(ligi_mesh_device *device, ligi_net *net)
{
    void *words;
    LIG_TRY(ligi_cuda_uuid(device->number, device->uuid));
    LIG_TRY(ligi_calloc(&device->free_words, LIGI_WORDS, sizeof *device->free_words, "a mesh"));
    for (uint32_t i = 0; i < LIGI_WORDS; i++)
        device->free_words[i] = LIGI_WORDS - 1 - i;
    device->free_count = LIGI_WORDS;
    LIG_TRY(ligi_cuda_stream_create(device->number, &device->in));
    LIG_TRY(ligi_cuda_stream_create(device->number, &device->out));
    LIG_TRY(ligi_cuda_pin(device->number, WORD_BYTES, &words));
    device->words = words;
    LIG_TRY(ligi_cuda_pinned_address(device->number, words, &device->words_address));
    LIG_TRY(ligi_block_pool_create(&device->holds, UINT64_MAX));
    LIG_TRY(ligi_arena_heap_create(&device->memory, LIGI_HEAP_DEVICE, device->number));
    LIG_TRY(ligi_arena_heap_create(&device->pinned, LIGI_HEAP_PINNED, device->number));
    return ligi_courier_start(&device->tasks, net, device->number, device->out);
}

lig_status ligi_mesh_device_open(lig_mesh *mesh, int32_t number, ligi_mesh_device **out)
{
    if (mesh->device && mesh->device->number != number)
        return lig_fail(LIG_E_INVALID,
                        "this member exchanges tensors of CUDA device %d, not of device %d: use a "
                        "mesh for each device",
                        mesh->device->number, number);
    if (mesh->device == NULL) {
        ligi_mesh_device *device;
        LIG_TRY(ligi_memory_usable(LIG_MEMORY_CUDA, number));
        LIG_TRY(ligi_calloc(&device, 1, sizeof *device, "a mesh"));
        device->mesh = mesh;
        device->number = number;
        lig_status status = make_parts(device, mesh->session.net);
        if (status != LIG_OK) {
            ligi_failure failure;
            ligi_failure_take(&failure, status);
            device_free(device, 0);
            return ligi_failure_publish(&failure);
        }
        mesh->device = device;
    }
    *out = mesh->device;
    return LIG_OK;
}

lig_status ligi_mesh_device_capturing(lig_mesh *mesh, int32_t number, ligi_on_stream on,
                                      ligi_mesh_device **device)
{
    int capturing = 0;
    *device = NULL;
    if (on.given && number >= 0)
        LIG_TRY(ligi_cuda_capturing(number, on.stream, &capturing));
    return capturing ? ligi_mesh_device_open(mesh, number, device) : LIG_OK;
}

void ligi_mesh_device_stop(lig_mesh *mesh)
{
    if (mesh->device && !ligi_courier_stop(&mesh->device->tasks, PATIENCE_NS))
        mesh->device->stuck = 1;
}

void ligi_mesh_device_fini(lig_mesh *mesh)
{
    if (mesh->device)
        device_free(mesh->device, mesh->device->stuck);
    mesh->device = NULL;
}

void ligi_mesh_device_help(lig_mesh *mesh)
{
    if (mesh->device)
        ligi_courier_help(&mesh->device->tasks);
}

lig_status ligi_mesh_device_of(const lig_tensor *tensors, size_t count, int32_t *number)
{
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].memory == LIG_MEMORY_HOST)
            continue;
        if (*number >= 0 && tensors[i].device != *number)
            return lig_fail(LIG_E_INVALID,
                            "the tensors of a request are on CUDA devices %d and %d: send a "
                            "request for each",
                            *number, tensors[i].device);
        *number = tensors[i].device;
    }
    return LIG_OK;
}

lig_status ligi_mesh_device_word(ligi_mesh_device *device, uint64_t **word)
{
    if (device->free_count == 0)
        return lig_fail(LIG_E_LIMIT, "more than %u copies of device tensors are in progress",
                        LIGI_WORDS);
    *word = &device->words[device->free_words[--device->free_count]];
    return LIG_OK;
}

void ligi_mesh_device_word_give(ligi_mesh_device *device, uint64_t *word)
{
    if (word)
        device->free_words[device->free_count++] = (uint32_t)(word - device->words);
}

uint64_t ligi_mesh_device_address(const ligi_mesh_device *device, const uint64_t *word)
{
    return device->words_address + (uint64_t)(word - device->words) * sizeof *word;
}

lig_status ligi_mesh_device_copy(ligi_mesh_device *device, void *stream,
                                 const ligi_cuda_move *moves, size_t count, ligi_courier_task *task)
{
    task->queued = 0;
    LIG_TRY(ligi_mesh_device_word(device, &task->word));
    task->least = ++device->ticket;
    ligi_cuda_batch batch = {.moves = moves,
                             .count = count,
                             .word = ligi_mesh_device_address(device, task->word),
                             .value = task->least};
    lig_status status = ligi_cuda_copy_and_write(device->number, stream, &batch);
    task->queued = batch.queued;
    if (status != LIG_OK) {
        ligi_mesh_device_word_give(device, task->word);
        task->word = NULL;
        return status;
    }
    ligi_courier_add(&device->tasks, task);
    return LIG_OK;
}

void ligi_mesh_device_fail(ligi_mesh_device *device, lig_status status, const char *sentence)
{
    if (device->failure.status != LIG_OK)
        return;
    ligi_failure_take(&device->failure, lig_fail(status, "%s", sentence));
    ligi_net_wake(device->mesh->session.net);
}

int ligi_mesh_device_failed(const lig_mesh *mesh)
{
    return mesh->device && mesh->device->failure.status != LIG_OK;
}

lig_status ligi_mesh_device_check(lig_mesh *mesh)
{
    if (!ligi_mesh_device_failed(mesh))
        return LIG_OK;
    lig_status status = ligi_failure_publish(&mesh->device->failure);
    mesh->device->failure.status = LIG_OK;
    return status;
}
