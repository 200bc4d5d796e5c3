#include "tensor/memory.h"

#include "base/error.h"
#include "base/hash.h"
#include "tensor/copy_team.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_hash.h"

#include <stdlib.h>
#include <string.h>

static lig_status no_such(uint16_t memory)
{
    return lig_fail(LIG_E_INVALID, "unknown memory kind %u", memory);
}

lig_status ligi_memory_usable(uint16_t memory, int32_t device)
{
    if (memory == LIG_MEMORY_HOST)
        return LIG_OK;
    return memory == LIG_MEMORY_CUDA ? ligi_cuda_usable(device) : no_such(memory);
}

lig_status ligi_memory_check(const void *data, uint64_t bytes, uint16_t memory, int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    return memory == LIG_MEMORY_HOST ? LIG_OK : ligi_cuda_check(data, bytes, device);
}

lig_status lig_memory_follow(uint32_t memory, int32_t device, void *stream)
{
    LIG_TRY(ligi_memory_usable((uint16_t)memory, device));
    return memory == LIG_MEMORY_HOST ? LIG_OK : ligi_cuda_follow(device, stream);
}

uint64_t ligi_memory_hash_least(uint16_t memory, int32_t device)
{
    if (memory == LIG_MEMORY_HOST)
        return 0;
    return memory == LIG_MEMORY_CUDA && ligi_cuda_hash_usable(device) ? LIGI_CUDA_HASH_MIN_BYTES
                                                                      : UINT64_MAX;
}

static lig_status hash_on_device(const void *secret, const ligi_memory_block *blocks, size_t count,
                                 int32_t device)
{
    ligi_cuda_block *wanted = NULL;
    uint64_t *hashes = NULL;
    LIG_TRY(ligi_alloc(&wanted, count * sizeof *wanted, "hashes"));
    lig_status status = ligi_alloc(&hashes, count * sizeof *hashes, "hashes");
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        wanted[i] = (ligi_cuda_block){(uintptr_t)blocks[i].data, blocks[i].bytes};
    if (status == LIG_OK)
        status = ligi_cuda_hash(device, secret, wanted, count, hashes);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        *blocks[i].hash = hashes[i];
    free(wanted);
    free(hashes);
    return status;
}

lig_status ligi_memory_hash(const void *secret, const ligi_memory_block *blocks, size_t count,
                            uint16_t memory, int32_t device)
{
    if (memory != LIG_MEMORY_HOST)
        return hash_on_device(secret, blocks, count, device);
    for (size_t i = 0; i < count; i++)
        *blocks[i].hash = ligi_hash64(secret, blocks[i].data, blocks[i].bytes);
    return LIG_OK;
}

lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    if (memory != LIG_MEMORY_HOST)
        return ligi_copy_to_host(host, data, bytes, memory, device);
    memcpy(host, data, bytes);
    return LIG_OK;
}

lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    if (memory != LIG_MEMORY_HOST)
        return ligi_copy_from_host(data, host, bytes, memory, device);
    memcpy(data, host, bytes);
    return LIG_OK;
}
