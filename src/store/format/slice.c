#include "store/format/slice.h"

#include "base/error.h"

#include <string.h>

static lig_status check_one(const char *name, uint32_t d, int64_t length, const lig_slice *slice)
{
    if (slice->step == 0 || slice->count < 0)
        return lig_fail(LIG_E_INVALID, "tensor '%s': invalid slice of dimension %u", name, d);
    if (slice->count == 0)
        return LIG_OK;
    int64_t span, last;
    if (__builtin_mul_overflow(slice->count - 1, slice->step, &span) ||
        __builtin_add_overflow(slice->start, span, &last) || slice->start < 0 ||
        slice->start >= length || last < 0 || last >= length)
        return lig_fail(LIG_E_INVALID,
                        "tensor '%s': the slice of dimension %u exceeds its %lld elements", name, d,
                        (long long)length);
    return LIG_OK;
}

lig_status ligi_slice_check(const lig_tensor *stored, const lig_tensor *into,
                            const lig_slice *slices)
{
    const char *name = stored->name;
    if (stored->dtype != into->dtype)
        return lig_fail(LIG_E_MISMATCH, "tensor '%s' is %s in the store and %s here", name,
                        lig_dtype_name(stored->dtype), lig_dtype_name(into->dtype));
    if (stored->ndim != into->ndim)
        return lig_fail(LIG_E_MISMATCH, "tensor '%s' has %u dimensions in the store and %u here",
                        name, stored->ndim, into->ndim);
    for (uint32_t d = 0; d < stored->ndim; d++) {
        if (slices)
            LIG_TRY(check_one(name, d, stored->shape[d], &slices[d]));
        int64_t wanted = slices ? slices[d].count : stored->shape[d];
        if (into->shape[d] != wanted)
            return lig_fail(
                LIG_E_MISMATCH, "tensor '%s': dimension %u is %lld in the store%s and %lld here",
                name, d, (long long)wanted, slices ? "'s slice" : "", (long long)into->shape[d]);
    }
    return LIG_OK;
}

/* One dimension of the walk, in bytes, oriented so that stored offsets ascend. */
typedef struct axis {
    uint64_t count, from_step;
    int64_t to_step;
} axis;

static uint32_t make_axes(axis *axes, const lig_tensor *stored, const lig_tensor *into,
                          const lig_slice *slices, ligi_walker *walker)
{
    uint64_t from_step = lig_dtype_bytes(stored->dtype);
    int64_t flat_step = (int64_t)from_step, element = (int64_t)from_step;
    for (uint32_t d = stored->ndim; d-- > 0;) {
        lig_slice all = {0, 1, stored->shape[d]};
        const lig_slice *slice = slices ? &slices[d] : &all;
        int64_t to_step = into->strides ? into->strides[d] * element : flat_step;
        uint64_t count = (uint64_t)slice->count;
        int64_t start = slice->start;
        axis one = {count, from_step * (uint64_t)slice->step, to_step};
        if (slice->step < 0) {
            start += (int64_t)(count - 1) * slice->step;
            walker->to += (int64_t)(count - 1) * to_step;
            one.from_step = from_step * (0 - (uint64_t)slice->step);
            one.to_step = -to_step;
        }
        walker->from += (uint64_t)start * from_step;
        axes[d] = one;
        from_step *= (uint64_t)stored->shape[d];
        flat_step *= into->shape[d];
    }
    return stored->ndim;
}

void ligi_walker_init(ligi_walker *walker, const lig_tensor *stored, const lig_tensor *into,
                      const lig_slice *slices)
{
    axis axes[LIG_NDIM_MAX];
    memset(walker, 0, sizeof *walker);
    walker->ended = into->bytes == 0;
    if (walker->ended)
        return;
    uint32_t ndim = make_axes(axes, stored, into, slices, walker);
    uint64_t element = lig_dtype_bytes(stored->dtype);
    walker->run = (ligi_run){.bytes = element, .count = 1, .from_step = element};
    /* Inner dimensions that are gapless on both sides become one run. */
    while (ndim &&
           (axes[ndim - 1].count == 1 || (axes[ndim - 1].from_step == walker->run.bytes &&
                                          axes[ndim - 1].to_step == (int64_t)walker->run.bytes))) {
        walker->run.bytes *= axes[ndim - 1].count;
        ndim--;
    }
    if (ndim) {
        ndim--;
        walker->run.count = axes[ndim].count;
        walker->run.from_step = axes[ndim].from_step;
        walker->run.to_step = axes[ndim].to_step;
    }
    walker->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        walker->count[d] = axes[d].count;
        walker->from_step[d] = axes[d].from_step;
        walker->to_step[d] = axes[d].to_step;
    }
}

int ligi_walker_next(ligi_walker *walker, ligi_run *run)
{
    if (walker->ended)
        return 0;
    *run = walker->run;
    run->from = walker->from;
    run->to = walker->to;
    uint32_t d = walker->ndim;
    while (d-- > 0) {
        walker->from += walker->from_step[d];
        walker->to += walker->to_step[d];
        if (++walker->index[d] < walker->count[d])
            return 1;
        walker->from -= walker->from_step[d] * walker->count[d];
        walker->to -= walker->to_step[d] * (int64_t)walker->count[d];
        walker->index[d] = 0;
    }
    walker->ended = 1;
    return 1;
}
