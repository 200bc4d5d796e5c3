#include "pipe/graph/scratch.h"

#include <stdlib.h>

void *ligi_scratch_take(ligi_scratch *scratch, size_t count, size_t size)
{
    if (scratch->block_count == scratch->block_capacity) {
        size_t capacity = scratch->block_capacity ? scratch->block_capacity * 2 : 32;
        void **block = realloc(scratch->block, capacity * sizeof *block);
        if (!block) {
            scratch->failed = 1;
            return NULL;
        }
        scratch->block = block;
        scratch->block_capacity = capacity;
    }
    void *piece = calloc(count ? count : 1, size);
    if (!piece)
        scratch->failed = 1;
    else
        scratch->block[scratch->block_count++] = piece;
    return piece;
}

lig_status ligi_scratch_check(const ligi_scratch *scratch)
{
    if (scratch->failed)
        return lig_fail(LIG_E_NOMEM, "out of memory for the partitioner");
    return LIG_OK;
}

void ligi_scratch_free(ligi_scratch *scratch)
{
    for (size_t i = 0; i < scratch->block_count; i++)
        free(scratch->block[i]);
    free(scratch->block);
    *scratch = (ligi_scratch)LIGI_SCRATCH_INIT;
}
