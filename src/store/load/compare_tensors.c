#include "store/load/compare_tensors.h"

#include "base/error.h"
#include "store/format/assemble.h"
#include "store/load/resolved_model.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 256 };

int ligi_compare_same_boxes(const ligi_manifest *a, size_t in_a, const ligi_manifest *b,
                            size_t in_b)
{
    ligi_whole left = ligi_manifest_whole(a, in_a), right = ligi_manifest_whole(b, in_b);
    if (left.count != right.count)
        return 0;
    size_t bytes = a->shown[in_a].tensor.ndim * sizeof(int64_t);
    for (size_t i = 0; i < left.count && left.count > 1 && bytes; i++)
        if (memcmp(a->places[left.first + i].start, b->places[right.first + i].start, bytes) != 0 ||
            memcmp(a->tensors[left.first + i].tensor.shape,
                   b->tensors[right.first + i].tensor.shape, bytes) != 0)
            return 0;
    return 1;
}

/* A contiguous range of a tensor in the window. */
typedef struct piece {
    ligi_pair *pair;
    uint64_t at, bytes;
    lig_slice slices[LIG_NDIM_MAX];
    int64_t shape[LIG_NDIM_MAX];
} piece;

/* Pieces of as many tensors as fit: one read of each model for all of them. */
typedef struct comparison {
    const lig_ref *a, *b;
    uint64_t window_bytes, filled;
    uint8_t *left, *right;
    piece *pieces;
    lig_read *reads;
    size_t count;
} comparison;

static lig_status read_pieces(comparison *self, const lig_ref *from, int first, uint8_t *to)
{
    for (size_t i = 0; i < self->count; i++) {
        piece *one = &self->pieces[i];
        size_t index = first ? one->pair->a : one->pair->b;
        lig_tensor into = from->model->manifest.shown[index].tensor;
        into.data = to + one->at;
        into.bytes = one->bytes;
        into.shape = one->shape;
        self->reads[i] = (lig_read){.into = into, .slices = into.ndim ? one->slices : NULL};
    }
    return lig_ref_read(from, self->reads, self->count, 0);
}

static lig_status flush(comparison *self)
{
    if (self->count == 0)
        return LIG_OK;
    LIG_TRY(read_pieces(self, self->a, 1, self->left));
    LIG_TRY(read_pieces(self, self->b, 0, self->right));
    for (size_t i = 0; i < self->count; i++) {
        const piece *one = &self->pieces[i];
        if (memcmp(self->left + one->at, self->right + one->at, one->bytes) != 0)
            one->pair->differ = 1;
    }
    self->count = 0;
    self->filled = 0;
    return LIG_OK;
}

/* Of `next` the slices and the shape are set. */
static lig_status add(comparison *self, piece *next)
{
    if (self->count == PIECES || next->bytes > self->window_bytes - self->filled)
        LIG_TRY(flush(self));
    next->at = self->filled;
    self->pieces[self->count++] = *next;
    self->filled += next->bytes;
    return LIG_OK;
}

/* How a tensor is split: a piece has all of the dimensions from `whole` on, `rows` of the dimension
 * before it, and one index of each earlier dimension. */
static uint32_t cut(const lig_tensor *tensor, uint64_t window_bytes, uint64_t *row_bytes)
{
    uint32_t whole = tensor->ndim;
    *row_bytes = lig_dtype_bytes(tensor->dtype);
    while (whole > 0 && (uint64_t)tensor->shape[whole - 1] <= window_bytes / *row_bytes)
        *row_bytes *= (uint64_t)tensor->shape[--whole];
    return whole;
}

/* Advances `next`; 0 after the last. */
static int advance(piece *next, const lig_tensor *tensor, uint32_t whole)
{
    for (uint32_t d = whole; d-- > 0;) {
        next->slices[d].start += next->shape[d];
        if (next->slices[d].start < tensor->shape[d])
            return 1;
        next->slices[d].start = 0;
    }
    return 0;
}

static lig_status compare_pair(comparison *self, ligi_pair *pair)
{
    const lig_tensor *tensor = &self->a->model->manifest.shown[pair->a].tensor;
    uint64_t row_bytes;
    piece next = {.pair = pair};
    if (tensor->bytes == 0)
        return LIG_OK;
    uint32_t whole = cut(tensor, self->window_bytes, &row_bytes);
    int64_t rows = (int64_t)(self->window_bytes / row_bytes);
    for (uint32_t d = 0; d < tensor->ndim; d++)
        next.slices[d].step = 1;
    do {
        next.bytes = row_bytes;
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            int64_t left = tensor->shape[d] - next.slices[d].start;
            int64_t most = d >= whole ? left : d + 1 == whole ? rows : 1;
            next.shape[d] = next.slices[d].count = left < most ? left : most;
        }
        if (whole > 0)
            next.bytes *= (uint64_t)next.shape[whole - 1];
        LIG_TRY(add(self, &next));
    } while (!pair->differ && advance(&next, tensor, whole));
    return LIG_OK;
}

lig_status ligi_compare_tensors(const lig_ref *a, const lig_ref *b, ligi_pair *pairs, size_t count,
                                uint64_t window_bytes)
{
    comparison self = {.a = a, .b = b, .window_bytes = window_bytes};
    for (size_t i = 0; i < count; i++) {
        uint64_t element = lig_dtype_bytes(a->model->manifest.shown[pairs[i].a].tensor.dtype);
        self.window_bytes = self.window_bytes < element ? element : self.window_bytes;
        pairs[i].differ = 0;
    }
    lig_status status = ligi_alloc(&self.left, self.window_bytes, "a comparison");
    if (status == LIG_OK)
        status = ligi_alloc(&self.right, self.window_bytes, "a comparison");
    if (status == LIG_OK)
        status = ligi_calloc(&self.pieces, PIECES, sizeof *self.pieces, "a comparison");
    if (status == LIG_OK)
        status = ligi_calloc(&self.reads, PIECES, sizeof *self.reads, "a comparison");
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = compare_pair(&self, &pairs[i]);
    if (status == LIG_OK)
        status = flush(&self);
    free(self.left);
    free(self.right);
    free(self.pieces);
    free(self.reads);
    return status;
}
