#include "params/rows/slab.h"

#include "base/error.h"
#include "params/rows/optimizer.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#define PAGE UINT64_C(4096)
#define POPULATED (UINT64_C(256) << 10)
#define POPULATED_MOST (UINT64_C(64) << 20)
#define POPULATE_WRITE 23 /* from Linux 5.14; older headers lack it */

enum { SPARE_BLOCK = 16 };

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

/* The next free slots are prefetched before they are filled, many at a time. */
static void fetch_spare(const ligi_slab *slab)
{
    uint32_t stop = slab->spare_count < SPARE_BLOCK ? 0 : slab->spare_count - SPARE_BLOCK;

    for (uint32_t i = slab->spare_count; i > stop; i--)
        ligi_row_meet(ligi_slab_row(slab, slab->spare[i - 1]));
    for (uint32_t i = slab->spare_count; i > stop; i--)
        ligi_slab_fetch(slab, slab->spare[i - 1]);
}

int ligi_slab_take(ligi_slab *slab, uint32_t *slot)
{
    if (slab->spare_count > 0) {
        *slot = slab->spare[--slab->spare_count];
        assert(*slot < slab->used);
        if (slab->spare_count % SPARE_BLOCK == 0)
            fetch_spare(slab);
        return 1;
    }
    if (slab->used == slab->capacity)
        return 0;
    *slot = slab->used++;
    return 1;
}

void ligi_slab_populate(const ligi_slab *slab, uint32_t slot)
{
    uint64_t from = slab->rows_at + (uint64_t)slot * slab->stride, to = from + slab->stride;
    uint64_t end = slab->rows_at + ligi_slab_rows_bytes(slab), stop = to + POPULATED;

    if (from / POPULATED == to / POPULATED && slot > 0)
        return;
    stop = (stop < end ? stop : end) / PAGE * PAGE;
    to = to / PAGE * PAGE;
    if (stop > to)
        madvise(slab->rows - slab->rows_at + to, stop - to, POPULATE_WRITE);
}

void ligi_slab_give(ligi_slab *slab, uint32_t slot)
{
    assert(slot < slab->used && slab->spare_count < slab->used);
    slab->spare[slab->spare_count++] = slot;
}

uint32_t ligi_slab_take_deltas(ligi_slab *slab)
{
    uint32_t number = slab->deltas_free;

    if (number == 0)
        return slab->deltas_used < slab->capacity ? ++slab->deltas_used : 0;
    memcpy(&slab->deltas_free, ligi_slab_pending(slab, number), 4);
    assert(slab->deltas_free <= slab->deltas_used && slab->deltas_free != number);
    return number;
}

void ligi_slab_give_deltas(ligi_slab *slab, uint32_t number)
{
    assert(number > 0 && number <= slab->deltas_used && number != slab->deltas_free);
    memcpy(ligi_slab_pending(slab, number), &slab->deltas_free, 4);
    slab->deltas_free = number;
}

lig_status ligi_region_make(uint64_t bytes, void **memory)
{
    uint64_t room = bytes + LIGI_HUGE_PAGE;
    uint8_t *all = mmap(NULL, room, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (all == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of %llu bytes for rows failed",
                               (unsigned long long)room);
    uint64_t before = -(uintptr_t)all % LIGI_HUGE_PAGE;
    if (before)
        munmap(all, before);
    munmap(all + before + bytes, room - before - bytes);
    madvise(all + before, bytes, MADV_HUGEPAGE); /* huge pages where the kernel has them; slower
                                                  * without */
    *memory = all + before;
    return LIG_OK;
}

void ligi_region_populate(void *memory, uint64_t bytes)
{
    madvise(memory, bytes < POPULATED_MOST ? bytes : POPULATED_MOST, POPULATE_WRITE);
}

void ligi_region_destroy(void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
