#include "store/save/save_source.h"

#include "tensor/memory.h"
#include "tensor/stride.h"

int ligi_source_flat(const ligi_source *source, const lig_tensor *tensor)
{
    return source->fill == NULL && tensor->memory == LIG_MEMORY_HOST &&
           lig_tensor_contiguous(tensor);
}

lig_status ligi_source_fill(const ligi_source *source, const ligi_plan *plan, size_t index,
                            const ligi_stretch *stretch)
{
    const lig_tensor *tensor = &plan->tensors[index];
    if (source->fill)
        return source->fill(source->context, index, stretch->offset, stretch->bytes, stretch->out);
    if (lig_tensor_contiguous(tensor))
        return ligi_memory_to_host(stretch->out, (const char *)tensor->data + stretch->offset,
                                   stretch->bytes, tensor->memory, tensor->device);
    ligi_tensor_pack_range(tensor, stretch->offset, stretch->bytes, stretch->out);
    return LIG_OK;
}
