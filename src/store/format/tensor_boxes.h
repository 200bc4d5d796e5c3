/* Boxes of a tensor: whether they cover it, and which parts of them a slice needs. Pure. */
#ifndef LIGI_TENSOR_BOXES_H
#define LIGI_TENSOR_BOXES_H

#include <ligament/store.h>

/* A box of a tensor with `ndim` dimensions. */
typedef struct ligi_tile {
    const int64_t *start, *shape;
} ligi_tile;

/* LIG_E_MISMATCH, with an error text, unless the tiles are inside a tensor of this shape and
 * cover every element exactly once. The tiles are sorted by their start. */
lig_status ligi_tiling_check(const int64_t *whole, uint32_t ndim, ligi_tile *tiles, size_t count);

/* The intersection of slices of the whole (NULL: all of it) with one tile: `within` are slices of
 * the tile, and `first` are the positions of its first elements in the requested slices. 0 if it is
 * empty. */
int ligi_tiling_meet(const int64_t *whole, uint32_t ndim, const ligi_tile *tile,
                     const lig_slice *slices, lig_slice *within, int64_t *first);

#endif
