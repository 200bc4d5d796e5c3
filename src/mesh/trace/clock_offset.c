#include "mesh/trace/clock_offset.h"

void ligi_clock_offset_feed(ligi_clock_offset *offset, const uint64_t moments[4])
{
    int64_t there = (int64_t)(moments[1] - moments[0]);
    int64_t back = (int64_t)(moments[2] - moments[3]);
    int64_t way = (int64_t)(moments[3] - moments[0]) - (int64_t)(moments[2] - moments[1]);
    if (offset->exact || way < 0) /* a peer may send anything */
        return;
    if (offset->count == LIGI_OFFSET_WINDOW) {
        offset->way_ns[1] = offset->way_ns[0];
        offset->offset_ns[1] = offset->offset_ns[0];
        offset->known[1] = offset->known[0];
        offset->known[0] = 0;
        offset->count = 0;
    }
    offset->count++;
    if (offset->known[0] && offset->way_ns[0] <= way)
        return;
    offset->known[0] = 1;
    offset->way_ns[0] = way;
    offset->offset_ns[0] = there + (back - there) / 2;
}

int64_t ligi_clock_offset_get(const ligi_clock_offset *offset)
{
    if (offset->exact || !(offset->known[0] || offset->known[1]))
        return 0;
    int last = offset->known[1] && (!offset->known[0] || offset->way_ns[1] < offset->way_ns[0]);
    return offset->offset_ns[last];
}

void ligi_clock_offset_apply(const ligi_clock_offset *offset, uint64_t stamps[LIG_MESH_STAMPS])
{
    uint64_t shift = (uint64_t)ligi_clock_offset_get(offset);
    for (int i = 2; i <= 5; i++) {
        stamps[i] -= shift;
        if (stamps[i] < stamps[i - 1])
            stamps[i] = stamps[i - 1];
    }
    for (int i = 5; i >= 2; i--)
        if (stamps[i] > stamps[i + 1])
            stamps[i] = stamps[i + 1];
}
