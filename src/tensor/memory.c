#include "tensor/memory.h"

#include "tensor/cuda.h"

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

lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device)
{
    if (memory == LIG_MEMORY_HOST) {
        memcpy(host, data, bytes);
        return LIG_OK;
    }
    return memory == LIG_MEMORY_CUDA ? ligi_cuda_to_host(host, data, bytes, device)
                                     : no_such(memory);
}

lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device)
{
    if (memory == LIG_MEMORY_HOST) {
        memcpy(data, host, bytes);
        return LIG_OK;
    }
    return memory == LIG_MEMORY_CUDA ? ligi_cuda_from_host(data, host, bytes, device)
                                     : no_such(memory);
}
