/* Arithmetic on rows, compiled for each instruction set and selected at run time. Memory of rows
 * that other threads may read is accessed only here, with plain loads and stores: a reader detects
 * a torn copy by the sequence in the row's head. In ThreadSanitizer builds the same code uses
 * relaxed atomics. */
#ifndef LIGI_ROW_KERNELS_H
#define LIGI_ROW_KERNELS_H

#include "params/rows/optimizer.h"
#include "params/rows/slab.h"

typedef struct ligi_row_push {
    void *values;         /* of the row */
    void *state;          /* of the row */
    const void *gradient; /* in the row's type, unaligned */
    void *pending;        /* replica: the change is added to this too; NULL: none */
    uint32_t length;      /* at most 2^31, so twice the length less one has 32 bits */
    const ligi_push_step *step;
} ligi_row_push;

typedef struct ligi_row_merge {
    void *values;      /* of the row */
    void *state;       /* of the row */
    const void *delta; /* values, then state, in the state's type, unaligned */
    size_t length, state_count;
} ligi_row_merge;

/* A batch of this node's rows. Rows that cannot be accessed at the first try (absent, draining,
 * being written) are added to the batch's misses. */
typedef struct ligi_row_sweep {
    const ligi_tables *tables;
    const ligi_slab *slab; /* of all rows; NULL: several slabs */
    ligi_batch *batch;
    const ligi_push_step *steps; /* pushes: one per table */
} ligi_row_sweep;

typedef void (*ligi_row_push_fn)(const ligi_row_push *push);

typedef struct ligi_row_kernels {
    const char *kind;
    void (*copy_out)(void *to, const void *row, size_t bytes);
    void (*copy_in)(void *row, const void *from, size_t bytes);
    ligi_row_push_fn push[LIGI_OPTIMIZERS];
    void (*merge)(const ligi_row_merge *merge);
    void (*gather)(const ligi_row_sweep *sweep);
    void (*scatter)(const ligi_row_sweep *sweep);
} ligi_row_kernels;

/* NULL for a dtype that rows cannot have. */
const ligi_row_kernels *ligi_row_kernels_pick(uint32_t dtype);

enum { LIGI_ROW_FLOAT32, LIGI_ROW_FLOAT64, LIGI_ROW_BFLOAT16, LIGI_ROW_INT32, LIGI_ROW_INT64 };
#define LIGI_ROW_TYPES 5
extern const ligi_row_kernels ligi_row_plain[LIGI_ROW_TYPES], ligi_row_avx2[LIGI_ROW_TYPES],
    ligi_row_avx512[LIGI_ROW_TYPES];

#endif
