/* A growing ring of begin-end pairs, which keeps the newest LIGI_STAMPS_MAX. All zeros is empty;
 * `pairs` is freed by the owner. */
#ifndef LIGI_STAMPS_RING_H
#define LIGI_STAMPS_RING_H

#include <stddef.h>
#include <stdint.h>

#define LIGI_STAMPS_MAX 65536

typedef struct ligi_stamps_ring {
    int64_t *pairs;
    size_t capacity; /* in pairs */
    size_t count, oldest;
} ligi_stamps_ring;

/* Drops the pair if memory is exhausted. */
void ligi_stamps_ring_add(ligi_stamps_ring *ring, int64_t begin_ns, int64_t end_ns);
/* Fills 2 * count numbers, the oldest pair first. */
void ligi_stamps_ring_copy(const ligi_stamps_ring *ring, int64_t *out);

#endif
