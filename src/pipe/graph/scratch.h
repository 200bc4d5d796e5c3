/* Memory that lives as long as one computation: allocated piece by piece, freed together. */
#ifndef LIGI_SCRATCH_H
#define LIGI_SCRATCH_H

#include <ligament/base.h>

typedef struct ligi_scratch {
    void **block;
    size_t block_count;
    size_t block_capacity;
    int failed; /* an allocation failed; callers check once, after several allocations */
} ligi_scratch;

#define LIGI_SCRATCH_INIT {0, 0, 0, 0}

/* `count` zeroed elements of `size` bytes (at least one); NULL and `failed` if memory is
 * exhausted. */
void *ligi_scratch_take(ligi_scratch *scratch, size_t count, size_t size);
#define LIGI_TAKE(scratch, type, count)                                                            \
    ((type *)ligi_scratch_take((scratch), (count), sizeof(type)))

/* LIG_E_NOMEM with a message if any allocation has failed so far. */
lig_status ligi_scratch_check(const ligi_scratch *scratch);

void ligi_scratch_free(ligi_scratch *scratch);

#endif
