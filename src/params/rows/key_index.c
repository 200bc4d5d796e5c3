#include "params/rows/key_index.h"

#include "params/rows/slab.h"

struct ligi_key_index_slot {
    int64_t key;
    _Atomic uint64_t entry; /* from 1; 0: free */
};

uint64_t ligi_key_index_hash(int64_t key)
{
    uint64_t x = (uint64_t)key + UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Home nodes are chosen by the remainder of the hash; table positions use its other end. */
static uint64_t first_slot(const ligi_key_index *key_index, int64_t key)
{
    return ligi_key_index_hash(key) >> 20 & key_index->mask;
}

lig_status ligi_key_index_init(ligi_key_index *key_index, uint64_t limit)
{
    uint64_t slots = 16;

    while (slots < 2 * limit)
        slots *= 2;
    uint64_t bytes = slots * sizeof *key_index->slots + limit * sizeof *key_index->keys;
    void *memory;
    LIG_TRY(
        ligi_region_make((bytes + LIGI_HUGE_PAGE - 1) / LIGI_HUGE_PAGE * LIGI_HUGE_PAGE, &memory));
    key_index->memory = memory;
    key_index->memory_bytes = (bytes + LIGI_HUGE_PAGE - 1) / LIGI_HUGE_PAGE * LIGI_HUGE_PAGE;
    key_index->slots = memory;
    key_index->keys = (int64_t *)(key_index->slots + slots);
    key_index->mask = slots - 1;
    key_index->limit = limit;
    atomic_init(&key_index->count, 0);
    return LIG_OK;
}

void ligi_key_index_fini(ligi_key_index *key_index)
{
    ligi_region_destroy(key_index->memory, key_index->memory_bytes);
    key_index->memory = NULL;
}

void ligi_key_index_prefetch(const ligi_key_index *key_index, int64_t key)
{
    __builtin_prefetch(&key_index->slots[first_slot(key_index, key)]);
}

int ligi_key_index_find(const ligi_key_index *key_index, int64_t key, ligi_entry *entry)
{
    for (uint64_t at = first_slot(key_index, key);; at = (at + 1) & key_index->mask) {
        const ligi_key_index_slot *slot = &key_index->slots[at];
        uint64_t number = atomic_load_explicit(&slot->entry, memory_order_acquire);
        if (number == 0)
            return 0;
        if (slot->key == key) {
            *entry = (ligi_entry)(number - 1);
            return 1;
        }
    }
}

ligi_entry ligi_key_index_reserve(ligi_key_index *key_index, int64_t key)
{
    ligi_entry entry = (ligi_entry)atomic_load_explicit(&key_index->count, memory_order_relaxed);

    key_index->keys[entry] = key;
    return entry;
}

void ligi_key_index_publish(ligi_key_index *key_index, int64_t key)
{
    uint64_t entry = atomic_load_explicit(&key_index->count, memory_order_relaxed);
    uint64_t at = first_slot(key_index, key);

    while (atomic_load_explicit(&key_index->slots[at].entry, memory_order_relaxed))
        at = (at + 1) & key_index->mask;
    key_index->slots[at].key = key;
    atomic_store_explicit(&key_index->slots[at].entry, entry + 1, memory_order_release);
    atomic_store_explicit(&key_index->count, entry + 1, memory_order_release);
}
