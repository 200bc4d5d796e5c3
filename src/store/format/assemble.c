#include "store/format/assemble.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/format/tensor_boxes.h"
#include "tensor/memory.h"
#include "tensor/stride.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

ligi_whole ligi_manifest_whole(const ligi_manifest *manifest, size_t index)
{
    return manifest->wholes ? manifest->wholes[index] : (ligi_whole){index, 1};
}

/* 1 if tensor `index` is another box of `first`. */
static int continues(const ligi_manifest *manifest, size_t first, size_t index)
{
    const lig_tensor *a = &manifest->tensors[first].tensor, *b = &manifest->tensors[index].tensor;
    const ligi_box_position *left = &manifest->places[first], *right = &manifest->places[index];
    return left->whole && right->whole && a->dtype == b->dtype && a->ndim == b->ndim &&
           strcmp(a->name, b->name) == 0 &&
           (a->ndim == 0 || memcmp(left->whole, right->whole, a->ndim * sizeof *left->whole) == 0);
}

static lig_status check_tiles(const ligi_manifest *manifest, const ligi_whole *whole,
                              ligi_tile *tiles)
{
    const lig_tensor *tensor = &manifest->tensors[whole->first].tensor;
    for (size_t i = 0; i < whole->count; i++)
        tiles[i] = (ligi_tile){manifest->places[whole->first + i].start,
                               manifest->tensors[whole->first + i].tensor.shape};
    if (ligi_tiling_check(manifest->places[whole->first].whole, tensor->ndim, tiles,
                          whole->count) != LIG_OK)
        return ligi_fail_again(LIG_E_CORRUPT, "the manifest of '%s' is damaged at tensor '%s': %s",
                               manifest->about.name, tensor->name, lig_error_text());
    return LIG_OK;
}

static lig_status find_wholes(ligi_manifest *manifest, ligi_tile *tiles)
{
    size_t count = 0;
    for (size_t i = 0; i < manifest->tensor_count;) {
        ligi_whole whole = {.first = i, .count = 1};
        while (i + whole.count < manifest->tensor_count && continues(manifest, i, i + whole.count))
            whole.count++;
        if (manifest->places[i].whole)
            LIG_TRY(check_tiles(manifest, &whole, tiles));
        manifest->wholes[count++] = whole;
        i += whole.count;
    }
    manifest->shown_count = count;
    return LIG_OK;
}

/* The tensor whose boxes are those that the boxes of `whole` are tied to; -1 when there is none.
 * `of` tells which tensor a stored one belongs to. */
static int64_t tied_to(const ligi_manifest *manifest, const ligi_whole *whole, const size_t *of)
{
    int64_t first = manifest->tensors[whole->first].tied;
    if (first < 0)
        return -1;
    size_t target = of[first];
    const ligi_whole *other = &manifest->wholes[target];
    if (other->first != (size_t)first || other->count != whole->count)
        return -1;
    for (size_t i = 0; i < whole->count; i++) {
        const ligi_box_position *a = &manifest->places[whole->first + i],
                                *b = &manifest->places[other->first + i];
        size_t bytes = manifest->tensors[whole->first].tensor.ndim * sizeof *a->start;
        if (manifest->tensors[whole->first + i].tied != first + (int64_t)i ||
            (a->whole == NULL) != (b->whole == NULL))
            return -1;
        if (a->whole && bytes &&
            (memcmp(a->whole, b->whole, bytes) != 0 || memcmp(a->start, b->start, bytes) != 0))
            return -1;
    }
    return (int64_t)target;
}

static void show_all(ligi_manifest *manifest, size_t *of)
{
    for (size_t i = 0; i < manifest->shown_count; i++) {
        const ligi_whole *whole = &manifest->wholes[i];
        lig_stored_tensor *shown = &manifest->shown[i];
        *shown = manifest->tensors[whole->first];
        for (size_t j = 0; j < whole->count; j++)
            of[whole->first + j] = i;
        shown->tied = tied_to(manifest, whole, of);
        shown->boxes = whole->count;
        const int64_t *shape = manifest->places[whole->first].whole;
        if (shape == NULL)
            continue;
        shown->tensor.shape = shape;
        /* It was computed before when the boxes were read. */
        (void)ligi_shape_bytes(shape, shown->tensor.ndim, shown->tensor.dtype,
                               &shown->tensor.bytes);
    }
}

lig_status ligi_manifest_assemble(ligi_manifest *manifest)
{
    size_t count = manifest->tensor_count, *of = NULL;
    ligi_tile *tiles = NULL;
    LIG_TRY(ligi_calloc(&manifest->wholes, count, sizeof *manifest->wholes, "tensors"));
    lig_status status = ligi_calloc(&tiles, count, sizeof *tiles, "boxes");
    if (status == LIG_OK)
        status = find_wholes(manifest, tiles);
    if (status == LIG_OK)
        status = ligi_calloc(&of, count, sizeof *of, "tensors");
    lig_stored_tensor *shown = NULL;
    if (status == LIG_OK)
        status = ligi_calloc(&shown, manifest->shown_count, sizeof *shown, "tensors");
    if (status == LIG_OK) {
        manifest->shown = shown;
        show_all(manifest, of);
    }
    free(tiles);
    free(of);
    return status;
}

void ligi_manifest_assemble_fingerprints(ligi_manifest *manifest, const void *secret)
{
    for (size_t i = 0; i < manifest->shown_count && manifest->wholes; i++) {
        const ligi_whole *whole = &manifest->wholes[i];
        lig_stored_tensor *shown = &manifest->shown[i];
        uint32_t ndim = shown->tensor.ndim;
        uint64_t words[2 + 2 + LIG_NDIM_MAX] = {0};
        memcpy(words, manifest->tensors[whole->first].fingerprint, 2 * sizeof *words);
        for (size_t j = 0; j < whole->count && whole->count > 1; j++) {
            memcpy(words + 2, manifest->tensors[whole->first + j].fingerprint, 2 * sizeof *words);
            for (uint32_t d = 0; d < ndim; d++)
                words[4 + d] = (uint64_t)manifest->places[whole->first + j].start[d];
            ligi_hash128 hash = ligi_hash128_keyed(secret, words, (4 + ndim) * sizeof *words);
            words[0] = hash.low;
            words[1] = hash.high;
        }
        memcpy(shown->fingerprint, words, 2 * sizeof *words);
    }
}

void ligi_assemble_copy(const ligi_manifest *manifest, size_t index, void *out)
{
    ligi_whole whole = ligi_manifest_whole(manifest, index);
    const lig_tensor *shown = &manifest->shown[index].tensor;
    for (size_t i = whole.first; i < whole.first + whole.count; i++) {
        lig_tensor box = manifest->tensors[i].tensor;
        int64_t strides[LIG_NDIM_MAX], flat = 1, offset = 0;
        for (uint32_t d = shown->ndim; d-- > 0;) {
            strides[d] = flat;
            offset += manifest->places[i].start[d] * flat;
            flat *= shown->shape[d];
        }
        const void *from = box.data;
        box.data = (char *)out + offset * (int64_t)lig_dtype_bytes(shown->dtype);
        box.strides = strides;
        if (box.bytes)
            ligi_tensor_unpack_range(&box, 0, box.bytes, from);
    }
}
