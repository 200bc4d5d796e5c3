/* State shared by table.c, row_access.c and row_install.c. */
#ifndef LIGI_TABLE_STATE_H
#define LIGI_TABLE_STATE_H

#include "params/rows/key_index.h"
#include "params/rows/row_kernels.h"
#include "params/rows/slab.h"

#include <pthread.h>

typedef struct ligi_table_info {
    char *name;
    int64_t offset;
    uint64_t key_count;
    lig_params_optimizer optimizer;
    lig_params_init init;
    const ligi_slab *slab; /* of all its rows; NULL if their lengths differ */
    _Atomic uint64_t lr;   /* the bits of a double */
    uint64_t used;         /* hashed keys in use, under the lock */
} ligi_table_info;

struct ligi_tables {
    uint32_t table_count, slab_count;
    uint32_t dtype, element_bytes;
    uint32_t rank, node_count;
    uint32_t uniform; /* the length of all rows, or 0 */
    int hashed;
    uint64_t entry_limit;
    const ligi_row_kernels *kernels;
    ligi_table_info *infos;
    ligi_slab *slabs;
    uint16_t *kinds; /* slab of each entry; NULL: the number of its table */
    ligi_word *words;
    ligi_entry_info *entry_infos;
    uint32_t *spare; /* owned by the slabs */
    uint8_t *region, *own, *deltas;
    uint64_t region_bytes, own_bytes, deltas_bytes;
    ligi_region_source source;
    ligi_key_index key_index;
    size_t body_bytes_max, delta_bytes_max;
    uint8_t apart[LIGI_LINE]; /* above: read by all threads; below: written all the time */
    _Atomic uint64_t owned, copied;

    pthread_mutex_t
        lock; /* hashed keys: free lists, insertion into key_index; taken before any row's lock */
    ligi_tables_changed_fn changed;
    void *changed_context;
    void *scratch; /* the longest body */
};

static inline uint32_t ligi_tables_word(const ligi_tables *tables, ligi_entry entry)
{
    return atomic_load_explicit(&tables->words[entry], memory_order_acquire);
}

/* Few tables, each of one length: their offsets are compared. */
static inline ligi_slab *ligi_tables_slab(const ligi_tables *tables, ligi_entry entry)
{
    uint32_t number = 0;

    if (tables->kinds)
        return &tables->slabs[tables->kinds[entry]];
    for (uint32_t i = 1; i < tables->table_count; i++)
        number += (uint64_t)entry >= (uint64_t)tables->infos[i].offset;
    return &tables->slabs[number];
}

#endif
