/* Rows of one table and one length: their location and their free slots. A second area, created
 * only for replicas, holds their deltas: pairs of pending and sent. */
#ifndef LIGI_SLAB_H
#define LIGI_SLAB_H

#include "params/rows/row.h"

#include <string.h>

#define LIGI_SLABS_MAX 4096u
#define LIGI_HUGE_PAGE (UINT64_C(2) << 20)

typedef struct ligi_slab {
    uint32_t table, length, optimizer;
    uint32_t delta_element_bytes;      /* and of state */
    uint64_t state_count, delta_count; /* elements */
    size_t value_bytes, state_at, body_bytes;
    size_t stride, delta_stride;
    uint64_t capacity;  /* capacity in rows, and in pairs of deltas */
    uint64_t rows_at;   /* in the region */
    uint64_t deltas_at; /* in the memory of deltas */
    uint8_t *rows, *deltas;
    uint8_t apart[LIGI_LINE]; /* above: read by all threads; below: written all the time */
    /* The free lists are guarded by the lock of the tables. */
    uint32_t used;                     /* slots ever used */
    uint32_t *spare, spare_count;      /* freed slots; last in, first out */
    uint32_t deltas_used, deltas_free; /* likewise */
    uint8_t apart_too[LIGI_LINE];      /* from the next slab */
} ligi_slab;

/* Fills everything that follows from dtype, length, optimizer and capacity. */
void ligi_slab_shape(ligi_slab *slab, uint32_t dtype);
uint64_t ligi_slab_rows_bytes(const ligi_slab *slab);
uint64_t ligi_slab_deltas_bytes(const ligi_slab *slab);

static inline ligi_row_head *ligi_slab_row(const ligi_slab *slab, uint32_t slot)
{
    return (ligi_row_head *)(slab->rows + (size_t)slot * slab->stride);
}

/* Prefetches the first lines of a row for writing; the hardware prefetches the rest. */
static inline void ligi_slab_fetch(const ligi_slab *slab, uint32_t slot)
{
    ligi_row_fetch(slab->rows + (size_t)slot * slab->stride, slab->stride);
}

/* The first of a pair (pending); sent follows after delta_count elements. `number` from 1. */
static inline uint8_t *ligi_slab_pending(const ligi_slab *slab, uint32_t number)
{
    return slab->deltas + (size_t)(number - 1) * slab->delta_stride;
}

static inline uint8_t *ligi_slab_sent(const ligi_slab *slab, uint32_t number)
{
    return ligi_slab_pending(slab, number) + (size_t)slab->delta_count * slab->delta_element_bytes;
}

/* The lowest state in which a row takes a push. */
static inline ligi_row_state ligi_slab_least(const ligi_slab *slab)
{
    return slab->optimizer == LIG_PARAMS_ADAM ? LIGI_ROW_OWNED : LIGI_ROW_REPLICA;
}

/* The pending delta of a replica, to add to. With the row locked. */
static inline void *ligi_slab_open_pending(const ligi_slab *slab, ligi_row_head *row)
{
    uint8_t *pending = ligi_slab_pending(slab, row->deltas);

    if (!(row->flags & LIGI_ROW_PENDING))
        memset(pending, 0, (size_t)slab->delta_count * slab->delta_element_bytes);
    row->flags |= LIGI_ROW_PENDING;
    return pending;
}

/* 0 if all are taken. */
int ligi_slab_take(ligi_slab *slab, uint32_t *slot);
void ligi_slab_give(ligi_slab *slab, uint32_t slot);
/* Called before a row is put into a slot that was never used: populates the pages of the following
 * slots too, which is much cheaper than one by one. */
void ligi_slab_populate(const ligi_slab *slab, uint32_t slot);
/* Numbers from 1, 0 if all are taken. The contents are undefined: the row's flags say what is
 * valid. */
uint32_t ligi_slab_take_deltas(ligi_slab *slab);
void ligi_slab_give_deltas(ligi_slab *slab, uint32_t number);

/* Zeros in huge pages, reserved and untouched. */
lig_status ligi_region_make(uint64_t bytes, void **memory);
/* Populates pages now instead of at first use, for memory accessed in random order; only the first
 * 64 MiB of a large range. */
void ligi_region_populate(void *memory, uint64_t bytes);
void ligi_region_destroy(void *memory, uint64_t bytes);

#endif
