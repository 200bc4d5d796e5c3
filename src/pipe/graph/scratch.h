/* Memory that lives as long as one computation: taken piece by piece, given back at once. */
#ifndef LIGI_SCRATCH_H
#define LIGI_SCRATCH_H

#include <ligament/base.h>

typedef struct ligi_scratch {
    void **block;
    size_t block_count;
    size_t block_capacity;
    int failed; /* a piece could not be had: whoever took several asks once, at the end */
} ligi_scratch;

#define LIGI_SCRATCH_INIT {0, 0, 0, 0}

/* `count` zeroed elements of `size` bytes (at least one); NULL and `failed` when there is no
 * memory. */
void *ligi_scratch_take(ligi_scratch *scratch, size_t count, size_t size);
#define LIGI_TAKE(scratch, type, count)                                                            \
    ((type *)ligi_scratch_take((scratch), (count), sizeof(type)))

/* LIG_E_NOMEM with a sentence when a piece could not be had since the beginning. */
lig_status ligi_scratch_check(const ligi_scratch *scratch);

void ligi_scratch_free(ligi_scratch *scratch);

#endif
