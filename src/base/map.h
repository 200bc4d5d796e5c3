/* A hash map from byte strings to pointers or indexes, whose keys are borrowed (the caller keeps
 * them alive), and sorted arrays. */
#ifndef LIGI_MAP_H
#define LIGI_MAP_H

#include <ligament/base.h>

typedef struct ligi_map_slot {
    const void *key;
    size_t key_bytes;
    uint64_t hash;
    uint64_t value;
} ligi_map_slot;

typedef struct ligi_map { /* embedded; zero-initialised is valid and empty */
    ligi_map_slot *slots;
    size_t capacity, count;
} ligi_map;

/* Makes room for `count` keys at once. */
lig_status ligi_map_reserve(ligi_map *map, size_t count);
/* Inserts; if the key exists its value is unchanged, *was (may be NULL) is set to it, and the call
 * returns LIG_E_EXISTS without an error text. */
lig_status ligi_map_insert(ligi_map *map, const void *key, size_t key_bytes, uint64_t value,
                           uint64_t *was);
/* 1 and fills *value (may be NULL) if the key exists. */
int ligi_map_find(const ligi_map *map, const void *key, size_t key_bytes, uint64_t *value);
void ligi_map_fini(ligi_map *map);

/* --- sorted arrays --- */

/* Sets `at` (a size_t variable) to the first index below `count` for which the expression `before`,
 * which reads `at`, is false; to `count` if there is none. From there on it must be false. */
#define LIGI_LOWER_BOUND(at, count, before)                                                        \
    do {                                                                                           \
        size_t low_ = 0, high_ = (count);                                                          \
        while (low_ < high_) {                                                                     \
            (at) = low_ + (high_ - low_) / 2;                                                      \
            if (before)                                                                            \
                low_ = (at) + 1;                                                                   \
            else                                                                                   \
                high_ = (at);                                                                      \
        }                                                                                          \
        (at) = low_;                                                                               \
    } while (0)

/* For qsort and bsearch. */
static inline int ligi_order_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

#endif
