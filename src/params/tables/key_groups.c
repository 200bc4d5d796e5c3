#include "params/tables/key_groups.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_AHEAD = 16 };

void ligi_key_groups_fini(ligi_key_groups *groups)
{
    free(groups->keys);
    free(groups->first);
    free(groups->last);
    free(groups->next);
    free(groups->cells);
    *groups = (ligi_key_groups){0};
}

static lig_status reserve(ligi_key_groups *groups, size_t count)
{
    size_t room = 64;

    if (count <= groups->room)
        return LIG_OK;
    while (room < count)
        room *= 2;
    ligi_key_groups_fini(groups);
    LIG_TRY(ligi_alloc(&groups->keys, room * sizeof *groups->keys, "a batch of keys"));
    LIG_TRY(ligi_alloc(&groups->first, room * sizeof *groups->first, "a batch of keys"));
    LIG_TRY(ligi_alloc(&groups->last, room * sizeof *groups->last, "a batch of keys"));
    LIG_TRY(ligi_alloc(&groups->next, room * sizeof *groups->next, "a batch of keys"));
    LIG_TRY(ligi_calloc(&groups->cells, 2 * room, sizeof *groups->cells, "a batch of keys"));
    groups->cell_room = 2 * room;
    groups->room = room;
    return LIG_OK;
}

static void begin(ligi_key_groups *groups)
{
    groups->count = 0;
    if (++groups->pass != 0)
        return;
    memset(groups->cells, 0, groups->cell_room * sizeof *groups->cells);
    groups->pass = 1;
}

static inline size_t home(const ligi_key_groups *groups, int64_t key)
{
    return (size_t)((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (groups->cell_room - 1);
}

/* The cell of the key's group, or the free one to put it in. */
static inline uint64_t *cell_of(const ligi_key_groups *groups, int64_t key)
{
    size_t at = home(groups, key);

    while (groups->cells[at] >> 32 == groups->pass &&
           groups->keys[(uint32_t)groups->cells[at]] != key)
        at = (at + 1) & (groups->cell_room - 1);
    return &groups->cells[at];
}

static inline void add_key(ligi_key_groups *groups, int64_t key, uint32_t position)
{
    uint64_t *cell = cell_of(groups, key);
    uint32_t group = (uint32_t)*cell;

    groups->next[position] = LIGI_KEY_LAST;
    if (*cell >> 32 == groups->pass) {
        groups->next[groups->last[group]] = position;
    } else {
        group = (uint32_t)groups->count++;
        *cell = (uint64_t)groups->pass << 32 | group;
        groups->keys[group] = key;
        groups->first[group] = position;
    }
    groups->last[group] = position;
}

lig_status ligi_key_groups_find(ligi_key_groups *groups, const int64_t *keys, size_t count)
{
    assert(count < LIGI_KEY_LAST);
    LIG_TRY(reserve(groups, count));
    if (count == 0) {
        groups->count = 0;
        return LIG_OK;
    }
    begin(groups);
    for (size_t i = 0; i < count; i++) {
        if (i + CELLS_AHEAD < count)
            __builtin_prefetch(&groups->cells[home(groups, keys[i + CELLS_AHEAD])]);
        add_key(groups, keys[i], (uint32_t)i);
    }
    return LIG_OK;
}
