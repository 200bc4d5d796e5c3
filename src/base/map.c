#include "base/map.h"

#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Open addressing with linear probing; at most half full, so that a probe is short. */

static size_t place_of(const ligi_map *map, const void *key, size_t key_bytes, uint64_t hash)
{
    size_t mask = map->capacity - 1;
    for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
        const ligi_map_slot *slot = &map->slots[at];
        if (slot->key == NULL)
            return at;
        if (slot->hash == hash && slot->key_bytes == key_bytes &&
            memcmp(slot->key, key, key_bytes) == 0)
            return at;
    }
}

lig_status ligi_map_reserve(ligi_map *map, size_t count)
{
    size_t capacity = map->capacity ? map->capacity : 16;
    while (capacity / 2 < count) {
        if (capacity > SIZE_MAX / 2)
            return lig_fail(LIG_E_LIMIT, "too many keys for a table: %zu", count);
        capacity *= 2;
    }
    if (capacity == map->capacity)
        return LIG_OK;
    ligi_map grown = {.capacity = capacity, .count = map->count};
    LIG_TRY(ligi_calloc(&grown.slots, capacity, sizeof *grown.slots, "a table"));
    for (size_t i = 0; i < map->capacity; i++) {
        const ligi_map_slot *slot = &map->slots[i];
        if (slot->key)
            grown.slots[place_of(&grown, slot->key, slot->key_bytes, slot->hash)] = *slot;
    }
    free(map->slots);
    *map = grown;
    return LIG_OK;
}

lig_status ligi_map_insert(ligi_map *map, const void *key, size_t key_bytes, uint64_t value,
                           uint64_t *was)
{
    LIG_TRY(ligi_map_reserve(map, map->count + 1));
    uint64_t hash = ligi_hash64_plain(key, key_bytes);
    ligi_map_slot *slot = &map->slots[place_of(map, key, key_bytes, hash)];
    if (slot->key) {
        if (was)
            *was = slot->value;
        return LIG_E_EXISTS;
    }
    *slot = (ligi_map_slot){key, key_bytes, hash, value};
    map->count++;
    return LIG_OK;
}

int ligi_map_find(const ligi_map *map, const void *key, size_t key_bytes, uint64_t *value)
{
    if (map->count == 0)
        return 0;
    uint64_t hash = ligi_hash64_plain(key, key_bytes);
    const ligi_map_slot *slot = &map->slots[place_of(map, key, key_bytes, hash)];
    if (slot->key == NULL)
        return 0;
    if (value)
        *value = slot->value;
    return 1;
}

void ligi_map_fini(ligi_map *map)
{
    free(map->slots);
    *map = (ligi_map){0};
}
