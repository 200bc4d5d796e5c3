#include "backend/item_map.h"

#include "base/error.h"
#include "base/map.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A new chunk is closed at CHUNK_FULL items. A chunk of fewer than CHUNK_LEAST items is not left
 * before a chunk of the old map, which is appended to it instead. So erasing does not leave many
 * small chunks. */
enum { CHUNK_FULL = 192, CHUNK_LEAST = 48 };

typedef struct map_item {
    atomic_size_t refs;
    size_t key_bytes, value_bytes;
    uint8_t bytes[]; /* the key in LIGI_ITEM_KEY_MAX bytes, then the value */
} map_item;

typedef struct map_chunk {
    atomic_size_t refs;
    size_t count;
    uint64_t bytes;
    map_item *items[CHUNK_FULL];
} map_chunk;

struct ligi_item_map {
    atomic_size_t refs;
    size_t count; /* of items */
    uint64_t bytes;
    size_t chunk_count, chunk_capacity;
    map_chunk **chunks; /* none is empty */
};

/* --- order --- */

static int compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (order != 0)
        return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

lig_status ligi_item_key_check(const void *key, size_t key_bytes)
{
    if (key == NULL || key_bytes == 0 || key_bytes > LIGI_ITEM_KEY_MAX)
        return lig_fail(LIG_E_INVALID, "invalid key of %zu bytes (expected 1 to %d)", key_bytes,
                        LIGI_ITEM_KEY_MAX);
    return LIG_OK;
}

/* Ops by key; of several with one key the last in the caller's order comes last. */
static int compare_ops(const void *a, const void *b)
{
    const lig_catalog_op *left = *(const lig_catalog_op *const *)a,
                         *right = *(const lig_catalog_op *const *)b;
    int order = compare(left->key, left->key_bytes, right->key, right->key_bytes);
    return order != 0 ? order : (left > right) - (left < right);
}

static lig_status sort_ops(const lig_catalog_op *ops, size_t *count, const lig_catalog_op ***sorted)
{
    size_t kept = 0;

    for (size_t i = 0; i < *count; i++)
        LIG_TRY(ligi_item_key_check(ops[i].key, ops[i].key_bytes));
    LIG_TRY(ligi_alloc(sorted, *count * sizeof **sorted + 1, "the changes of the catalog"));
    const lig_catalog_op **by_key = *sorted;
    for (size_t i = 0; i < *count; i++)
        by_key[i] = &ops[i];
    qsort(by_key, *count, sizeof *by_key, compare_ops);
    for (size_t i = 0; i < *count; i++)
        if (i + 1 == *count || compare(by_key[i]->key, by_key[i]->key_bytes, by_key[i + 1]->key,
                                       by_key[i + 1]->key_bytes) != 0)
            by_key[kept++] = by_key[i];
    *count = kept;
    return LIG_OK;
}

/* --- parts --- */

static void item_release(map_item *item)
{
    if (atomic_fetch_sub(&item->refs, 1) == 1)
        free(item);
}

static lig_status item_create(const lig_catalog_op *op, map_item **out)
{
    map_item *made;

    if (op->value_bytes > UINT32_MAX)
        return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                        op->value_bytes);
    LIG_TRY(ligi_alloc(&made, sizeof *made + LIGI_ITEM_KEY_MAX + op->value_bytes,
                       "an item of the catalog"));
    atomic_init(&made->refs, 1);
    made->key_bytes = op->key_bytes;
    made->value_bytes = op->value_bytes;
    memcpy(made->bytes, op->key, op->key_bytes);
    if (op->value_bytes != 0)
        memcpy(made->bytes + LIGI_ITEM_KEY_MAX, op->value, op->value_bytes);
    *out = made;
    return LIG_OK;
}

static void chunk_release(map_chunk *chunk)
{
    if (atomic_fetch_sub(&chunk->refs, 1) != 1)
        return;
    for (size_t i = 0; i < chunk->count; i++)
        item_release(chunk->items[i]);
    free(chunk);
}

ligi_item_map *ligi_item_map_hold(ligi_item_map *map)
{
    if (map != NULL)
        atomic_fetch_add(&map->refs, 1);
    return map;
}

void ligi_item_map_release(ligi_item_map *map)
{
    if (map == NULL || atomic_fetch_sub(&map->refs, 1) != 1)
        return;
    for (size_t i = 0; i < map->chunk_count; i++)
        chunk_release(map->chunks[i]);
    free(map->chunks);
    free(map);
}

/* --- editing --- */

typedef struct map_making { /* a map under construction, and its last chunk if that is not closed */
    ligi_item_map *map;
    map_chunk *open;
} map_making;

static lig_status add_chunk(ligi_item_map *map, map_chunk *chunk)
{
    LIG_TRY(ligi_grow(&map->chunks, &map->chunk_capacity, map->chunk_count + 1, sizeof(map_chunk *),
                      "the catalog"));
    map->chunks[map->chunk_count++] = chunk;
    return LIG_OK;
}

/* Takes ownership of the item, also on failure. */
static lig_status add_item(map_making *making, map_item *item)
{
    if (making->open == NULL || making->open->count == CHUNK_FULL) {
        map_chunk *made = NULL;
        lig_status status = ligi_alloc(&made, sizeof *made, "the catalog");
        if (status == LIG_OK) {
            atomic_init(&made->refs, 1);
            made->count = 0;
            made->bytes = 0;
            status = add_chunk(making->map, made);
        }
        if (status != LIG_OK) {
            free(made);
            item_release(item);
            return status;
        }
        making->open = made;
    }
    making->open->items[making->open->count++] = item;
    making->open->bytes += item->key_bytes + item->value_bytes;
    making->map->count++;
    making->map->bytes += item->key_bytes + item->value_bytes;
    return LIG_OK;
}

static lig_status keep_item(map_making *making, map_item *item)
{
    atomic_fetch_add(&item->refs, 1);
    return add_item(making, item);
}

/* Puts the items behind those of a small open chunk. More than one chunk holds become two halves: a
 * full one and a small rest would pass on to the next chunk, and so to the end of the map. */
static lig_status join_chunk(map_making *making, const map_chunk *chunk)
{
    size_t total = making->open->count + chunk->count;
    size_t first = total > CHUNK_FULL ? total / 2 - making->open->count : chunk->count;

    for (size_t i = 0; i < chunk->count; i++) {
        if (i == first)
            making->open = NULL;
        LIG_TRY(keep_item(making, chunk->items[i]));
    }
    return LIG_OK;
}

static lig_status keep_chunk(map_making *making, map_chunk *chunk)
{
    if (making->open != NULL && making->open->count < CHUNK_LEAST)
        return join_chunk(making, chunk);
    LIG_TRY(add_chunk(making->map, chunk));
    atomic_fetch_add(&chunk->refs, 1);
    making->open = NULL;
    making->map->count += chunk->count;
    making->map->bytes += chunk->bytes;
    return LIG_OK;
}

static lig_status put_op(map_making *making, const lig_catalog_op *op)
{
    map_item *item;

    if (op->value == NULL)
        return LIG_OK;
    LIG_TRY(item_create(op, &item));
    return add_item(making, item);
}

static int op_order(const map_item *item, const lig_catalog_op *op)
{
    return compare(item->bytes, item->key_bytes, op->key, op->key_bytes);
}

/* The items of one old chunk and the ops up to its last key; *done moves behind them. */
static lig_status merge_chunk(map_making *making, const map_chunk *chunk,
                              const lig_catalog_op *const *ops, size_t count, size_t *done)
{
    for (size_t at = 0; at < chunk->count; at++) {
        int replaced = 0;
        while (*done < count && !replaced) {
            int order = op_order(chunk->items[at], ops[*done]);
            if (order < 0)
                break;
            replaced = order == 0;
            LIG_TRY(put_op(making, ops[(*done)++]));
        }
        if (!replaced)
            LIG_TRY(keep_item(making, chunk->items[at]));
    }
    return LIG_OK;
}

static lig_status merge(map_making *making, const ligi_item_map *old,
                        const lig_catalog_op *const *ops, size_t count)
{
    size_t done = 0, chunks = old == NULL ? 0 : old->chunk_count;

    for (size_t i = 0; i < chunks; i++) {
        map_chunk *chunk = old->chunks[i];
        if (done == count || op_order(chunk->items[chunk->count - 1], ops[done]) < 0)
            LIG_TRY(keep_chunk(making, chunk));
        else
            LIG_TRY(merge_chunk(making, chunk, ops, count, &done));
    }
    while (done < count)
        LIG_TRY(put_op(making, ops[done++]));
    return LIG_OK;
}

lig_status ligi_item_map_edit(const ligi_item_map *old, const lig_catalog_op *ops, size_t count,
                              ligi_item_map **next)
{
    const lig_catalog_op **sorted;
    map_making making = {0};

    LIG_TRY(sort_ops(ops, &count, &sorted));
    lig_status status = ligi_calloc(&making.map, 1, sizeof *making.map, "the catalog");
    if (status == LIG_OK) {
        atomic_init(&making.map->refs, 1);
        status = merge(&making, old, sorted, count);
    }
    free(sorted);
    if (status == LIG_OK)
        *next = making.map;
    else
        ligi_item_map_release(making.map);
    return status;
}

/* --- reading --- */

static void fill(const map_item *from, lig_catalog_item *out)
{
    out->key = from->bytes;
    out->key_bytes = from->key_bytes;
    out->value = from->bytes + LIGI_ITEM_KEY_MAX;
    out->value_bytes = from->value_bytes;
}

static const map_item *last_item(const map_chunk *chunk)
{
    return chunk->items[chunk->count - 1];
}

static int is_before(const map_item *item, const void *key, size_t key_bytes)
{
    return compare(item->bytes, item->key_bytes, key, key_bytes) < 0;
}

/* The first item whose key is >= `key`; NULL at the end. */
static const map_item *lower_bound(const ligi_item_map *map, const void *key, size_t key_bytes)
{
    size_t at, end = map == NULL ? 0 : map->chunk_count;

    LIGI_LOWER_BOUND(at, end, is_before(last_item(map->chunks[at]), key, key_bytes));
    if (at == end)
        return NULL;
    const map_chunk *found = map->chunks[at];
    LIGI_LOWER_BOUND(at, found->count, is_before(found->items[at], key, key_bytes));
    return found->items[at];
}

int ligi_item_map_seek(const ligi_item_map *map, const void *key, size_t key_bytes,
                       lig_catalog_item *item)
{
    const map_item *found = lower_bound(map, key, key_bytes);

    if (found == NULL)
        return 0;
    fill(found, item);
    return 1;
}

int ligi_item_map_get(const ligi_item_map *map, const void *key, size_t key_bytes,
                      lig_catalog_item *item)
{
    const map_item *found = lower_bound(map, key, key_bytes);

    if (found == NULL || found->key_bytes != key_bytes || memcmp(found->bytes, key, key_bytes) != 0)
        return 0;
    fill(found, item);
    return 1;
}

int ligi_item_map_next(const ligi_item_map *map, ligi_item_walk *walk, lig_catalog_item *item)
{
    if (map == NULL || walk->chunk == map->chunk_count)
        return 0;
    const map_chunk *chunk = map->chunks[walk->chunk];
    fill(chunk->items[walk->at], item);
    if (++walk->at == chunk->count) {
        walk->at = 0;
        walk->chunk++;
    }
    return 1;
}

size_t ligi_item_map_count(const ligi_item_map *map)
{
    return map == NULL ? 0 : map->count;
}

uint64_t ligi_item_map_bytes(const ligi_item_map *map)
{
    return map == NULL ? 0 : map->bytes;
}

lig_status ligi_item_snapshot_get(void *snapshot, const void *key, size_t key_bytes,
                                  lig_catalog_item *item)
{
    ligi_item_map *const *items = snapshot;

    LIG_TRY(ligi_item_key_check(key, key_bytes));
    return ligi_item_map_get(*items, key, key_bytes, item) ? LIG_OK : LIG_E_NOTFOUND;
}

lig_status ligi_item_snapshot_seek(void *snapshot, const void *key, size_t key_bytes,
                                   lig_catalog_item *item)
{
    ligi_item_map *const *items = snapshot;

    LIG_TRY(ligi_item_key_check(key, key_bytes));
    return ligi_item_map_seek(*items, key, key_bytes, item) ? LIG_OK : LIG_E_NOTFOUND;
}
