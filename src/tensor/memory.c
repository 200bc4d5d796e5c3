#include "tensor/memory.h"

#include <string.h>

lig_status ligi_memory_usable(uint16_t memory, int32_t device)
{
    if (memory == LIG_MEMORY_HOST)
        return LIG_OK;
    if (memory == LIG_MEMORY_CUDA)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "memory of CUDA device %d cannot be reached by this build; copy it to the host first",
            device);
    return lig_fail(LIG_E_INVALID, "memory kind %u does not exist", memory);
}

lig_status ligi_memory_to_host(void *host, const void *data, size_t bytes, uint16_t memory,
                               int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    memcpy(host, data, bytes);
    return LIG_OK;
}

lig_status ligi_memory_from_host(void *data, const void *host, size_t bytes, uint16_t memory,
                                 int32_t device)
{
    LIG_TRY(ligi_memory_usable(memory, device));
    memcpy(data, host, bytes);
    return LIG_OK;
}
