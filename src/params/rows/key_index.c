#include "params/rows/key_index.h"

#include "params/rows/slab.h"

struct ligi_directory_slot {
    int64_t key;
    _Atomic uint64_t entry; /* from 1; 0: free */
};

uint64_t ligi_directory_hash(int64_t key)
{
    uint64_t x = (uint64_t)key + UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Home nodes are chosen by the remainder of the hash: places in the table come from its other end.
 */
static uint64_t first_slot(const ligi_directory *directory, int64_t key)
{
    return ligi_directory_hash(key) >> 20 & directory->mask;
}

lig_status ligi_directory_init(ligi_directory *directory, uint64_t limit)
{
    uint64_t slots = 16;

    while (slots < 2 * limit)
        slots *= 2;
    uint64_t bytes = slots * sizeof *directory->slots + limit * sizeof *directory->keys;
    void *memory;
    LIG_TRY(
        ligi_region_make((bytes + LIGI_HUGE_PAGE - 1) / LIGI_HUGE_PAGE * LIGI_HUGE_PAGE, &memory));
    directory->memory = memory;
    directory->memory_bytes = (bytes + LIGI_HUGE_PAGE - 1) / LIGI_HUGE_PAGE * LIGI_HUGE_PAGE;
    directory->slots = memory;
    directory->keys = (int64_t *)(directory->slots + slots);
    directory->mask = slots - 1;
    directory->limit = limit;
    atomic_init(&directory->count, 0);
    return LIG_OK;
}

void ligi_directory_fini(ligi_directory *directory)
{
    ligi_region_destroy(directory->memory, directory->memory_bytes);
    directory->memory = NULL;
}

void ligi_directory_prefetch(const ligi_directory *directory, int64_t key)
{
    __builtin_prefetch(&directory->slots[first_slot(directory, key)]);
}

int ligi_directory_find(const ligi_directory *directory, int64_t key, ligi_entry *entry)
{
    for (uint64_t at = first_slot(directory, key);; at = (at + 1) & directory->mask) {
        const ligi_directory_slot *slot = &directory->slots[at];
        uint64_t number = atomic_load_explicit(&slot->entry, memory_order_acquire);
        if (number == 0)
            return 0;
        if (slot->key == key) {
            *entry = (ligi_entry)(number - 1);
            return 1;
        }
    }
}

ligi_entry ligi_directory_reserve(ligi_directory *directory, int64_t key)
{
    ligi_entry entry = (ligi_entry)atomic_load_explicit(&directory->count, memory_order_relaxed);

    directory->keys[entry] = key;
    return entry;
}

void ligi_directory_publish(ligi_directory *directory, int64_t key)
{
    uint64_t entry = atomic_load_explicit(&directory->count, memory_order_relaxed);
    uint64_t at = first_slot(directory, key);

    while (atomic_load_explicit(&directory->slots[at].entry, memory_order_relaxed))
        at = (at + 1) & directory->mask;
    directory->slots[at].key = key;
    atomic_store_explicit(&directory->slots[at].entry, entry + 1, memory_order_release);
    atomic_store_explicit(&directory->count, entry + 1, memory_order_release);
}
