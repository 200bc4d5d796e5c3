/* Slices of a stored tensor as runs of bytes, in ascending order of their stored offsets. Pure. */
#ifndef LIGI_SLICE_H
#define LIGI_SLICE_H

#include <ligament/store.h>

/* `count` runs of `bytes` bytes, the first at `from`, each `from_step` further; their destinations
 * begin at `to`, each `to_step` further. */
typedef struct ligi_run {
    uint64_t from, from_step;
    int64_t to, to_step; /* in bytes from the destination's first element */
    uint64_t bytes, count;
} ligi_run;

typedef struct ligi_walker {
    uint32_t ndim; /* outer dimensions that are iterated over */
    uint64_t index[LIG_NDIM_MAX], count[LIG_NDIM_MAX];
    uint64_t from_step[LIG_NDIM_MAX];
    int64_t to_step[LIG_NDIM_MAX];
    ligi_run run; /* the innermost */
    uint64_t from;
    int64_t to;
    int ended;
} ligi_walker;

/* Checks slices (one a dimension; NULL: everything) against the stored shape and the destination's,
 * and prepares the walk. */
lig_status ligi_slice_check(const lig_tensor *stored, const lig_tensor *into,
                            const lig_slice *slices);
void ligi_walker_init(ligi_walker *walker, const lig_tensor *stored, const lig_tensor *into,
                      const lig_slice *slices);
/* 1 and fills *run while there is one. */
int ligi_walker_next(ligi_walker *walker, ligi_run *run);

#endif
