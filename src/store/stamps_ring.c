#include "store/stamps_ring.h"

#include <stdlib.h>
#include <string.h>

/* A ring grows to its limit before it turns, so growing never has to straighten it. */
static int make_room(ligi_stamps_ring *ring)
{
    if (ring->count < ring->capacity || ring->capacity == LIGI_STAMPS_MAX)
        return 1;
    size_t capacity = ring->capacity ? 2 * ring->capacity : 64;
    int64_t *pairs = realloc(ring->pairs, capacity * 2 * sizeof *pairs);
    if (pairs == NULL)
        return 0;
    ring->pairs = pairs;
    ring->capacity = capacity;
    return 1;
}

void ligi_stamps_ring_add(ligi_stamps_ring *ring, int64_t begin_ns, int64_t end_ns)
{
    if (!make_room(ring))
        return;
    size_t at = (ring->oldest + ring->count) % ring->capacity;
    ring->pairs[2 * at] = begin_ns;
    ring->pairs[2 * at + 1] = end_ns;
    if (ring->count < ring->capacity)
        ring->count++;
    else
        ring->oldest = (ring->oldest + 1) % ring->capacity;
}

void ligi_stamps_ring_copy(const ligi_stamps_ring *ring, int64_t *out)
{
    for (size_t i = 0; i < ring->count; i++) {
        size_t at = (ring->oldest + i) % ring->capacity;
        memcpy(out + 2 * i, ring->pairs + 2 * at, 2 * sizeof *out);
    }
}
