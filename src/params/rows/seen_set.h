/* The entries seen by one pass over a batch: a set that is emptied in constant time. Pure. */
#ifndef LIGI_SEEN_SET_H
#define LIGI_SEEN_SET_H

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct ligi_seen_set { /* zeroed is valid, with capacity 0 */
    uint64_t *cells;           /* pass above entry; another pass: free */
    size_t room;               /* a power of two */
    uint32_t pass;
} ligi_seen_set;

/* Room for `count` entries. */
static inline lig_status ligi_seen_set_reserve(ligi_seen_set *seen_set, size_t count)
{
    size_t room = 64;
    while (room < 2 * count)
        room *= 2;
    if (room <= seen_set->room)
        return LIG_OK;
    free(seen_set->cells);
    *seen_set = (ligi_seen_set){0};
    LIG_TRY(ligi_calloc(&seen_set->cells, room, sizeof *seen_set->cells, "a batch of keys"));
    seen_set->room = room;
    return LIG_OK;
}

static inline void ligi_seen_set_fini(ligi_seen_set *seen_set)
{
    free(seen_set->cells);
    *seen_set = (ligi_seen_set){0};
}

static inline void ligi_seen_set_begin(ligi_seen_set *seen_set)
{
    if (++seen_set->pass != 0)
        return;
    memset(seen_set->cells, 0, seen_set->room * sizeof *seen_set->cells);
    seen_set->pass = 1;
}

/* The cell that has the entry, or the one to put it in. */
static inline uint64_t *ligi_seen_set_cell(const ligi_seen_set *seen_set, uint32_t entry)
{
    uint64_t wanted = (uint64_t)seen_set->pass << 32 | entry;
    size_t at = (size_t)(entry * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (seen_set->room - 1);
    while (seen_set->cells[at] != wanted && seen_set->cells[at] >> 32 == seen_set->pass)
        at = (at + 1) & (seen_set->room - 1);
    return &seen_set->cells[at];
}

static inline int ligi_seen_set_has(const ligi_seen_set *seen_set, uint32_t entry)
{
    return *ligi_seen_set_cell(seen_set, entry) >> 32 == seen_set->pass;
}

/* 1 if it is new. */
static inline int ligi_seen_set_add(ligi_seen_set *seen_set, uint32_t entry)
{
    uint64_t *cell = ligi_seen_set_cell(seen_set, entry);
    int found = *cell >> 32 == seen_set->pass;
    *cell = (uint64_t)seen_set->pass << 32 | entry;
    return !found;
}

#endif
