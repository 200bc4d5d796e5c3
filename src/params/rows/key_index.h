/* Hashed keys: key -> entry, open addressing, sized at open; entries are never removed. Lookup
 * needs no lock, insertion does. */
#ifndef LIGI_KEY_INDEX_H
#define LIGI_KEY_INDEX_H

#include "params/rows/row_types.h"

#include <stdatomic.h>

typedef struct ligi_key_index_slot ligi_key_index_slot;

typedef struct ligi_key_index {
    ligi_key_index_slot *slots;
    int64_t *keys; /* by entry */
    uint64_t mask, limit;
    _Atomic uint64_t count;
    void *memory;
    uint64_t memory_bytes;
} ligi_key_index;

/* The same on every node and in every version. */
uint64_t ligi_key_index_hash(int64_t key);

lig_status ligi_key_index_init(ligi_key_index *key_index, uint64_t limit);
void ligi_key_index_fini(ligi_key_index *key_index);

void ligi_key_index_prefetch(const ligi_key_index *key_index, int64_t key);
int ligi_key_index_find(const ligi_key_index *key_index, int64_t key, ligi_entry *entry);
/* One caller at a time; the key must be absent and count < limit. `reserve` returns the entry it
 * will have; lookups find the key after `publish`. */
ligi_entry ligi_key_index_reserve(ligi_key_index *key_index, int64_t key);
void ligi_key_index_publish(ligi_key_index *key_index, int64_t key);

#endif
