/* Hashed keys: key -> entry, open addressing, sized at open; entries never go. Finding needs no
 * lock, adding does. */
#ifndef LIGI_KEY_INDEX_H
#define LIGI_KEY_INDEX_H

#include "params/rows/row_types.h"

#include <stdatomic.h>

typedef struct ligi_directory_slot ligi_directory_slot;

typedef struct ligi_directory {
    ligi_directory_slot *slots;
    int64_t *keys; /* by entry */
    uint64_t mask, limit;
    _Atomic uint64_t count;
    void *memory;
    uint64_t memory_bytes;
} ligi_directory;

/* The same on every node and for ever. */
uint64_t ligi_directory_hash(int64_t key);

lig_status ligi_directory_init(ligi_directory *directory, uint64_t limit);
void ligi_directory_fini(ligi_directory *directory);

void ligi_directory_prefetch(const ligi_directory *directory, int64_t key);
int ligi_directory_find(const ligi_directory *directory, int64_t key, ligi_entry *entry);
/* One caller at a time; the key is not there and count < limit. `reserve` says which entry it will
 * be; the key is found once `publish` was called. */
ligi_entry ligi_directory_reserve(ligi_directory *directory, int64_t key);
void ligi_directory_publish(ligi_directory *directory, int64_t key);

#endif
