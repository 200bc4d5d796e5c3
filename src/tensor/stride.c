#include "tensor/stride.h"

#include <string.h>

/* A walk over the elements of a strided tensor in row-major order. The innermost contiguous
 * dimensions are combined into one run, so that a transposed matrix costs one step per element, but
 * a sliced one only a step per row. */
typedef struct walk {
    char *base;
    uint64_t run_bytes;          /* of one run */
    uint32_t outer;              /* dimensions in front of the run */
    int64_t index[LIG_NDIM_MAX]; /* of the current run */
    int64_t step_bytes[LIG_NDIM_MAX];
    const int64_t *shape;
} walk;

static void walk_start(walk *at, const lig_tensor *tensor, uint64_t run)
{
    uint32_t element = lig_dtype_bytes(tensor->dtype);
    at->base = tensor->data;
    at->shape = tensor->shape;
    at->outer = tensor->ndim;
    uint64_t elements = 1;
    int64_t expected = 1;
    while (at->outer > 0) {
        uint32_t i = at->outer - 1;
        if (tensor->shape[i] != 1 && tensor->strides && tensor->strides[i] != expected)
            break;
        expected *= tensor->shape[i];
        elements *= (uint64_t)tensor->shape[i];
        at->outer--;
    }
    at->run_bytes = elements * element;
    int64_t contiguous = (int64_t)elements;
    for (uint32_t i = at->outer; i-- > 0;) {
        at->step_bytes[i] = (tensor->strides ? tensor->strides[i] : contiguous) * (int64_t)element;
        contiguous *= tensor->shape[i];
        at->index[i] = (int64_t)(run % (uint64_t)tensor->shape[i]);
        run /= (uint64_t)tensor->shape[i];
        at->base += at->index[i] * at->step_bytes[i];
    }
}

static void walk_next(walk *at)
{
    for (uint32_t i = at->outer; i-- > 0;) {
        at->base += at->step_bytes[i];
        if (++at->index[i] < at->shape[i])
            return;
        at->base -= at->step_bytes[i] * at->shape[i];
        at->index[i] = 0;
    }
}

static void copy_run(char *strided, char *flat, uint64_t bytes, int pack)
{
    if (pack)
        memcpy(flat, strided, bytes);
    else
        memcpy(strided, flat, bytes);
}

static void copy_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes, char *flat,
                       int pack)
{
    if (bytes == 0)
        return;
    walk at;
    walk_start(&at, tensor, 0);
    uint64_t run = offset / at.run_bytes, skip = offset % at.run_bytes;
    if (run)
        walk_start(&at, tensor, run);
    while (bytes) {
        uint64_t part = at.run_bytes - skip < bytes ? at.run_bytes - skip : bytes;
        copy_run(at.base + skip, flat, part, pack);
        flat += part;
        bytes -= part;
        skip = 0;
        walk_next(&at);
    }
}

void ligi_tensor_pack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes, void *flat)
{
    copy_range(tensor, offset, bytes, flat, 1);
}

void ligi_tensor_unpack_range(const lig_tensor *tensor, uint64_t offset, uint64_t bytes,
                              const void *flat)
{
    copy_range(tensor, offset, bytes, (char *)flat, 0);
}

void lig_tensor_pack(const lig_tensor *tensor, void *flat)
{
    copy_range(tensor, 0, tensor->bytes, flat, 1);
}

void lig_tensor_unpack(const lig_tensor *tensor, const void *flat)
{
    copy_range(tensor, 0, tensor->bytes, (char *)flat, 0);
}
