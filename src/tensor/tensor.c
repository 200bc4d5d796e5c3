#include "tensor/tensor.h"

#include "base/codec.h"
#include "base/error.h"
#include "base/map.h"
#include "tensor/memory.h"

#include <string.h>

lig_status ligi_shape_bytes(const int64_t *shape, uint32_t ndim, uint32_t dtype, uint64_t *bytes)
{
    uint64_t total = lig_dtype_bytes(dtype);
    int empty = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return lig_fail(LIG_E_INVALID, "dimension %u is negative", i);
        empty |= shape[i] == 0;
    }
    for (uint32_t i = 0; i < ndim && !empty; i++)
        if (__builtin_mul_overflow(total, (uint64_t)shape[i], &total) || total > INT64_MAX)
            return lig_fail(LIG_E_LIMIT, "shape larger than 2^63 bytes");
    *bytes = empty ? 0 : total;
    return LIG_OK;
}

static lig_status check_name(const char *name, size_t index)
{
    if (name == NULL || name[0] == '\0')
        return lig_fail(LIG_E_INVALID, "tensor %zu has no name", index);
    size_t bytes = strlen(name);
    if (bytes > LIG_NAME_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT,
                        "the name of tensor %zu ('%.40s...') has %zu bytes, but the limit is %d",
                        index, name, bytes, LIG_NAME_BYTES_MAX);
    if (!ligi_utf8_valid(name, bytes))
        return lig_fail(LIG_E_INVALID, "the name of tensor %zu is not valid UTF-8", index);
    return LIG_OK;
}

static lig_status check_one(const lig_tensor *tensor, size_t index)
{
    LIG_TRY(check_name(tensor->name, index));
    if (lig_dtype_bytes(tensor->dtype) == 0)
        return lig_fail(LIG_E_INVALID, "tensor '%s' has unknown dtype %u", tensor->name,
                        tensor->dtype);
    if (tensor->ndim > LIG_NDIM_MAX)
        return lig_fail(LIG_E_LIMIT, "tensor '%s' has %u dimensions, but the limit is %d",
                        tensor->name, tensor->ndim, LIG_NDIM_MAX);
    if (tensor->ndim && tensor->shape == NULL)
        return lig_fail(LIG_E_INVALID, "tensor '%s': shape is NULL", tensor->name);
    uint64_t bytes;
    lig_status status = ligi_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &bytes);
    if (status != LIG_OK)
        return ligi_fail_again(status, "tensor '%s': %s", tensor->name, lig_error_text());
    if (bytes != tensor->bytes)
        return lig_fail(LIG_E_INVALID,
                        "tensor '%s': bytes is %llu, but its shape and dtype need %llu",
                        tensor->name, (unsigned long long)tensor->bytes, (unsigned long long)bytes);
    if (tensor->flags)
        return lig_fail(LIG_E_INVALID, "tensor '%s' has unknown flags %#x", tensor->name,
                        tensor->flags);
    if (tensor->memory != LIG_MEMORY_HOST && !lig_tensor_contiguous(tensor))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "tensor '%s' is not contiguous in device memory: make it contiguous",
                        tensor->name);
    status = ligi_memory_usable(tensor->memory, tensor->device);
    if (status != LIG_OK)
        return ligi_fail_again(status, "tensor '%s': %s", tensor->name, lig_error_text());
    return LIG_OK;
}

static lig_status check_memory(const lig_tensor *tensor)
{
    lig_status status =
        ligi_memory_check(tensor->data, tensor->bytes, tensor->memory, tensor->device);
    if (status != LIG_OK)
        return ligi_fail_again(status, "tensor '%s': %s", tensor->name, lig_error_text());
    return LIG_OK;
}

lig_status ligi_tensors_check(const lig_tensor *tensors, size_t count, int with_data)
{
    ligi_map seen = {0};
    lig_status status = ligi_map_reserve(&seen, count);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        status = check_one(&tensors[i], i);
        if (status != LIG_OK)
            break;
        if (with_data && tensors[i].bytes && tensors[i].data == NULL) {
            status = lig_fail(LIG_E_INVALID, "tensor '%s': data is NULL", tensors[i].name);
            break;
        }
        status = with_data ? check_memory(&tensors[i]) : LIG_OK;
        if (status != LIG_OK)
            break;
        status = ligi_map_insert(&seen, tensors[i].name, strlen(tensors[i].name), i, NULL);
        if (status == LIG_E_EXISTS)
            status = lig_fail(LIG_E_INVALID, "two tensors are named '%s'", tensors[i].name);
    }
    ligi_map_fini(&seen);
    return status;
}

lig_status lig_tensors_check(const lig_tensor *tensors, size_t count)
{
    return ligi_tensors_check(tensors, count, 1);
}

int lig_tensor_contiguous(const lig_tensor *tensor)
{
    if (tensor->strides == NULL || tensor->bytes == 0)
        return 1;
    int64_t expected = 1;
    for (uint32_t i = tensor->ndim; i-- > 0;) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected)
            return 0;
        expected *= tensor->shape[i];
    }
    return 1;
}
