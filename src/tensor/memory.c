#include "tensor/memory.h"

#include "tensor/copy_team.h"
#include "tensor/cuda/cuda_device.h"

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
