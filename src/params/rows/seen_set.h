/* Entries that one pass over a batch has met: a set that is emptied in no time. Pure. */
#ifndef LIGI_SEEN_SET_H
#define LIGI_SEEN_SET_H

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct ligi_missed { /* zeroed is valid, and has no room */
    uint64_t *cells;         /* pass above entry; of another pass: free */
    size_t room;             /* a power of two */
    uint32_t pass;
} ligi_missed;

/* Room for `count` entries. */
static inline lig_status ligi_missed_reserve(ligi_missed *missed, size_t count)
{
    size_t room = 64;
    while (room < 2 * count)
        room *= 2;
    if (room <= missed->room)
        return LIG_OK;
    free(missed->cells);
    *missed = (ligi_missed){0};
    LIG_TRY(ligi_calloc(&missed->cells, room, sizeof *missed->cells, "a batch of keys"));
    missed->room = room;
    return LIG_OK;
}

static inline void ligi_missed_fini(ligi_missed *missed)
{
    free(missed->cells);
    *missed = (ligi_missed){0};
}

static inline void ligi_missed_begin(ligi_missed *missed)
{
    if (++missed->pass != 0)
        return;
    memset(missed->cells, 0, missed->room * sizeof *missed->cells);
    missed->pass = 1;
}

/* The cell that has the entry, or the one where it would be. */
static inline uint64_t *ligi_missed_cell(const ligi_missed *missed, uint32_t entry)
{
    uint64_t wanted = (uint64_t)missed->pass << 32 | entry;
    size_t at = (size_t)(entry * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (missed->room - 1);
    while (missed->cells[at] != wanted && missed->cells[at] >> 32 == missed->pass)
        at = (at + 1) & (missed->room - 1);
    return &missed->cells[at];
}

static inline int ligi_missed_has(const ligi_missed *missed, uint32_t entry)
{
    return *ligi_missed_cell(missed, entry) >> 32 == missed->pass;
}

/* 1 when it is new. */
static inline int ligi_missed_add(ligi_missed *missed, uint32_t entry)
{
    uint64_t *cell = ligi_missed_cell(missed, entry);
    int found = *cell >> 32 == missed->pass;
    *cell = (uint64_t)missed->pass << 32 | entry;
    return !found;
}

#endif
