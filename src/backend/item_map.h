/* The items of a catalog in memory, in byte order of their keys. A map is immutable: an edit
 * creates a new one, which shares most of its memory with the old one, so that a snapshot is a
 * reference. **Shared**: maps may be held, read and released by any thread. */
#ifndef LIGI_ITEM_MAP_H
#define LIGI_ITEM_MAP_H

#include <ligament/backend.h>

#define LIGI_ITEM_KEY_MAX 64

typedef struct ligi_item_map ligi_item_map;

/* LIG_E_INVALID unless the key has 1 to LIGI_ITEM_KEY_MAX bytes. */
lig_status ligi_item_key_check(const void *key, size_t key_bytes);

/* A new map: `old` (NULL: empty) after the ops; of several with one key, the last counts. Allocates
 * the chunks that change and a pointer for each of the others. Released by
 * ligi_item_map_release. */
lig_status ligi_item_map_edit(const ligi_item_map *old, const lig_catalog_op *ops, size_t count,
                              ligi_item_map **next);
ligi_item_map *ligi_item_map_hold(ligi_item_map *map); /* returns it; NULL is valid */
void ligi_item_map_release(ligi_item_map *map);        /* NULL is valid */

/* NULL is an empty map in all of these. Returns 1 if the item exists; its memory is valid as long
 * as the map. */
int ligi_item_map_get(const ligi_item_map *map, const void *key, size_t key_bytes,
                      lig_catalog_item *item);
/* The first whose key is >= `key`. */
int ligi_item_map_seek(const ligi_item_map *map, const void *key, size_t key_bytes,
                       lig_catalog_item *item);
/* The next item of a walk in the order of the keys; 0 at the end. */
typedef struct ligi_item_walk {
    size_t chunk, at;
} ligi_item_walk; /* zero-initialised */
int ligi_item_map_next(const ligi_item_map *map, ligi_item_walk *walk, lig_catalog_item *item);
size_t ligi_item_map_count(const ligi_item_map *map);
uint64_t ligi_item_map_bytes(const ligi_item_map *map); /* of all keys and values */

/* A volume's catalog_get and catalog_seek. The snapshot is a struct whose first member is its
 * ligi_item_map. */
lig_status ligi_item_snapshot_get(void *snapshot, const void *key, size_t key_bytes,
                                  lig_catalog_item *item);
lig_status ligi_item_snapshot_seek(void *snapshot, const void *key, size_t key_bytes,
                                   lig_catalog_item *item);

#endif
