#include "params/slab.h"

#include "base/error.h"
#include "params/optimizer.h"

#include <errno.h>
#include <sys/mman.h>

enum { SPARE_AHEAD = 4 };

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void ligi_slab_shape(ligi_slab *slab, uint32_t dtype)
{
    slab->state_count = ligi_optimizer_state_count(slab->optimizer, slab->length);
    slab->delta_count = slab->length + slab->state_count;
    slab->delta_element_bytes = dtype == LIG_BFLOAT16 ? 4 : lig_dtype_bytes(dtype);
    slab->value_bytes = (size_t)slab->length * lig_dtype_bytes(dtype);
    slab->state_at = slab->state_count ? round_up(slab->value_bytes, 8) : slab->value_bytes;
    slab->body_bytes = slab->state_at + (size_t)slab->state_count * slab->delta_element_bytes;
    slab->stride = round_up(sizeof(ligi_row_head) + slab->body_bytes, LIGI_LINE);
    slab->delta_stride =
        round_up(2 * (size_t)slab->delta_count * slab->delta_element_bytes, LIGI_LINE);
}

uint64_t ligi_slab_rows_bytes(const ligi_slab *slab)
{
    return slab->capacity * slab->stride;
}

uint64_t ligi_slab_deltas_bytes(const ligi_slab *slab)
{
    return slab->capacity * slab->delta_stride;
}

/* Those to be taken next are fetched while this one is filled. */
int ligi_slab_take(ligi_slab *slab, uint32_t *slot)
{
    if (slab->spare_count > 0) {
        *slot = slab->spare[--slab->spare_count];
        if (slab->spare_count >= SPARE_AHEAD)
            ligi_slab_fetch(slab, slab->spare[slab->spare_count - SPARE_AHEAD]);
        return 1;
    }
    if (slab->used == slab->capacity)
        return 0;
    *slot = slab->used++;
    return 1;
}

void ligi_slab_give(ligi_slab *slab, uint32_t slot)
{
    slab->spare[slab->spare_count++] = slot;
}

uint32_t ligi_slab_take_deltas(ligi_slab *slab)
{
    uint32_t number = slab->deltas_free;

    if (number == 0)
        return slab->deltas_used < slab->capacity ? ++slab->deltas_used : 0;
    memcpy(&slab->deltas_free, ligi_slab_pending(slab, number), 4);
    return number;
}

void ligi_slab_give_deltas(ligi_slab *slab, uint32_t number)
{
    memcpy(ligi_slab_pending(slab, number), &slab->deltas_free, 4);
    slab->deltas_free = number;
}

lig_status ligi_region_make(uint64_t bytes, void **memory)
{
    uint64_t room = bytes + LIGI_HUGE_PAGE;
    uint8_t *all = mmap(NULL, room, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (all == MAP_FAILED)
        return ligi_fail_errno(errno, "reserving %llu bytes for rows", (unsigned long long)room);
    uint64_t before = -(uintptr_t)all % LIGI_HUGE_PAGE;
    if (before)
        munmap(all, before);
    munmap(all + before + bytes, room - before - bytes);
    madvise(all + before, bytes, MADV_HUGEPAGE); /* where the kernel has them; slower without */
    *memory = all + before;
    return LIG_OK;
}

void ligi_region_destroy(void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
