#include "store/format/tensor_boxes.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { BOX_TEXT_BYTES = 160 };

/* "[0:4, 2:8]", cut where it grows too long. */
static const char *box_text(const ligi_tile *tile, uint32_t ndim, char *text)
{
    int at = snprintf(text, BOX_TEXT_BYTES, "[");
    for (uint32_t d = 0; d < ndim && at < BOX_TEXT_BYTES - 50; d++)
        at += snprintf(text + at, (size_t)(BOX_TEXT_BYTES - at), "%s%lld:%lld", d ? ", " : "",
                       (long long)tile->start[d], (long long)(tile->start[d] + tile->shape[d]));
    snprintf(text + at, (size_t)(BOX_TEXT_BYTES - at), "]");
    return text;
}

static lig_status check_inside(const int64_t *whole, uint32_t ndim, const ligi_tile *tile)
{
    char text[BOX_TEXT_BYTES];
    for (uint32_t d = 0; d < ndim; d++)
        if (tile->start[d] < 0 || tile->shape[d] < 0 || tile->start[d] > whole[d] ||
            tile->shape[d] > whole[d] - tile->start[d])
            return lig_fail(LIG_E_MISMATCH,
                            "its box %s exceeds dimension %u, which has %lld elements",
                            tile->start[d] < 0 || tile->start[d] > INT64_MAX / 2 ||
                                    tile->shape[d] > INT64_MAX / 2
                                ? "at an invalid position"
                                : box_text(tile, ndim, text),
                            d, (long long)whole[d]);
    return LIG_OK;
}

static int by_start(const void *a, const void *b, void *context)
{
    const ligi_tile *left = a, *right = b;
    uint32_t ndim = *(const uint32_t *)context;
    for (uint32_t d = 0; d < ndim; d++)
        if (left->start[d] != right->start[d])
            return left->start[d] < right->start[d] ? -1 : 1;
    return 0;
}

static int overlap(const ligi_tile *a, const ligi_tile *b, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (a->start[d] >= b->start[d] + b->shape[d] || b->start[d] >= a->start[d] + a->shape[d])
            return 0;
    return 1;
}

static uint64_t volume(const int64_t *shape, uint32_t ndim)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < ndim; d++)
        elements *= (uint64_t)shape[d];
    return elements;
}

/* In order of their first rows, a tile can only meet those before it that reach into its first row:
 * `reach[]` keeps these few. Tiles that split rows alone cost n log n, any others at most the
 * square. */
static lig_status check_apart(uint32_t ndim, const ligi_tile *tiles, size_t count, size_t *reach)
{
    size_t reaching = 0;
    for (size_t i = 0; i < count; i++) {
        size_t kept = 0;
        if (volume(tiles[i].shape, ndim) == 0)
            continue;
        for (size_t j = 0; j < reaching; j++) {
            const ligi_tile *before = &tiles[reach[j]];
            if (ndim && before->start[0] + before->shape[0] <= tiles[i].start[0])
                continue;
            char left[BOX_TEXT_BYTES], right[BOX_TEXT_BYTES];
            if (overlap(before, &tiles[i], ndim))
                return lig_fail(LIG_E_MISMATCH, "its boxes %s and %s cover the same elements",
                                box_text(before, ndim, left), box_text(&tiles[i], ndim, right));
            reach[kept++] = reach[j];
        }
        reach[kept++] = i;
        reaching = kept;
    }
    return LIG_OK;
}

lig_status ligi_tiling_check(const int64_t *whole, uint32_t ndim, ligi_tile *tiles, size_t count)
{
    uint64_t covered = 0, wanted = volume(whole, ndim);
    for (size_t i = 0; i < count; i++)
        LIG_TRY(check_inside(whole, ndim, &tiles[i]));
    if (count)
        qsort_r(tiles, count, sizeof *tiles, by_start, &ndim);
    size_t *reach;
    LIG_TRY(ligi_calloc(&reach, count, sizeof *reach, "boxes"));
    lig_status status = check_apart(ndim, tiles, count, reach);
    free(reach);
    LIG_TRY(status);
    for (size_t i = 0; i < count; i++)
        covered += volume(tiles[i].shape, ndim);
    if (covered != wanted)
        return lig_fail(LIG_E_MISMATCH, "its boxes cover %llu of %llu elements",
                        (unsigned long long)covered, (unsigned long long)wanted);
    return LIG_OK;
}

/* Of start, start + step, ... (`count`) those in [low, high): the numbers [*first, *end). */
static void clip(const lig_slice *slice, int64_t low, int64_t high, int64_t *first, int64_t *end)
{
    /* Of one element the step is any number, also one that cannot be negated. */
    int64_t step = slice->count < 2 ? 1 : slice->step > 0 ? slice->step : -slice->step;
    /* A negative step walks forwards from the other end. */
    int64_t ahead = slice->step > 0 ? low - slice->start : slice->start - (high - 1);
    int64_t past = slice->step > 0 ? high - slice->start : slice->start - (low - 1);
    *first = ahead > 0 ? (ahead + step - 1) / step : 0;
    *end = past > 0 ? (past + step - 1) / step : 0;
    if (*end > slice->count)
        *end = slice->count;
}

int ligi_tiling_meet(const int64_t *whole, uint32_t ndim, const ligi_tile *tile,
                     const lig_slice *slices, lig_slice *within, int64_t *first)
{
    for (uint32_t d = 0; d < ndim; d++) {
        lig_slice all = {0, 1, whole[d]};
        const lig_slice *asked = slices ? &slices[d] : &all;
        int64_t end;
        clip(asked, tile->start[d], tile->start[d] + tile->shape[d], &first[d], &end);
        if (end <= first[d])
            return 0;
        within[d] = (lig_slice){asked->start + first[d] * asked->step - tile->start[d], asked->step,
                                end - first[d]};
    }
    return 1;
}
