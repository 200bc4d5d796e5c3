#include "params/tables/table_info.h"

#include "params/rows/table_state.h"

#include <stdio.h>
#include <string.h>

int ligi_tables_hashed(const ligi_tables *tables)
{
    return tables->hashed;
}

uint32_t ligi_tables_count(const ligi_tables *tables)
{
    return tables->table_count;
}

uint32_t ligi_tables_dtype(const ligi_tables *tables)
{
    return tables->dtype;
}

uint32_t ligi_tables_element_bytes(const ligi_tables *tables)
{
    return tables->element_bytes;
}

const char *ligi_tables_name(const ligi_tables *tables, uint32_t table)
{
    return tables->infos[table].name;
}

lig_status ligi_tables_find(const ligi_tables *tables, const char *name, uint32_t *table)
{
    char known[512] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < tables->table_count; i++) {
        if (strcmp(tables->infos[i].name, name) == 0) {
            *table = i;
            return LIG_OK;
        }
        if (at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s'%s'", i ? ", " : "",
                                   tables->infos[i].name);
    }
    return lig_fail(LIG_E_NOTFOUND, "no table '%s' (tables: %s)", name, known);
}

int64_t ligi_tables_offset(const ligi_tables *tables, uint32_t table)
{
    return tables->infos[table].offset;
}

uint64_t ligi_tables_key_count(const ligi_tables *tables, uint32_t table)
{
    return tables->infos[table].key_count;
}

uint64_t ligi_tables_entry_limit(const ligi_tables *tables)
{
    return tables->entry_limit;
}

uint64_t ligi_tables_entry_count(const ligi_tables *tables)
{
    return tables->hashed ? atomic_load_explicit(&tables->key_index.count, memory_order_acquire)
                          : tables->entry_limit;
}

const lig_params_optimizer *ligi_tables_optimizer(const ligi_tables *tables, uint32_t table)
{
    return &tables->infos[table].optimizer;
}

int ligi_tables_replicable(const ligi_tables *tables, ligi_entry entry)
{
    return ligi_tables_slab(tables, entry)->optimizer != LIG_PARAMS_ADAM;
}

uint32_t ligi_tables_uniform(const ligi_tables *tables)
{
    return tables->uniform;
}

uint32_t ligi_tables_length(const ligi_tables *tables, ligi_entry entry)
{
    return ligi_tables_slab(tables, entry)->length;
}

int64_t ligi_tables_key(const ligi_tables *tables, ligi_entry entry)
{
    return tables->hashed ? tables->key_index.keys[entry] : (int64_t)entry;
}

int ligi_tables_table_of_key(const ligi_tables *tables, int64_t key)
{
    uint64_t number = (uint64_t)key >> LIG_PARAMS_HASHED_SHIFT;

    if (tables->hashed)
        return number < tables->table_count ? (int)number : -1;
    if ((uint64_t)key >= tables->entry_limit)
        return -1;
    return (int)ligi_tables_slab(tables, (ligi_entry)key)->table;
}

uint32_t ligi_tables_length_of_key(const ligi_tables *tables, int64_t key)
{
    int table = ligi_tables_table_of_key(tables, key);

    if (table < 0)
        return 0;
    return tables->hashed ? tables->slabs[table].length
                          : ligi_tables_slab(tables, (ligi_entry)key)->length;
}

int ligi_tables_known(const ligi_tables *tables, int64_t key, ligi_entry *entry)
{
    if (ligi_tables_table_of_key(tables, key) < 0)
        return 0;
    if (tables->hashed)
        return ligi_key_index_find(&tables->key_index, key, entry);
    *entry = (ligi_entry)key;
    return 1;
}

size_t ligi_tables_body_bytes(const ligi_tables *tables, ligi_entry entry)
{
    return ligi_tables_slab(tables, entry)->body_bytes;
}

uint32_t ligi_tables_state_element_bytes(const ligi_tables *tables)
{
    return tables->slabs[0].delta_element_bytes;
}

size_t ligi_tables_delta_bytes(const ligi_tables *tables, ligi_entry entry)
{
    const ligi_slab *slab = ligi_tables_slab(tables, entry);

    return (size_t)slab->delta_count * slab->delta_element_bytes;
}

size_t ligi_tables_body_bytes_max(const ligi_tables *tables)
{
    return tables->body_bytes_max;
}

size_t ligi_tables_delta_bytes_max(const ligi_tables *tables)
{
    return tables->delta_bytes_max;
}

void ligi_tables_set_lr(ligi_tables *tables, uint32_t table, double lr)
{
    uint64_t bits;

    memcpy(&bits, &lr, sizeof bits);
    atomic_store_explicit(&tables->infos[table].lr, bits, memory_order_relaxed);
}

double ligi_tables_get_lr(const ligi_tables *tables, uint32_t table)
{
    uint64_t bits = atomic_load_explicit(&tables->infos[table].lr, memory_order_relaxed);
    double lr;

    memcpy(&lr, &bits, sizeof lr);
    return lr;
}

void *ligi_tables_region(const ligi_tables *tables, uint64_t *bytes)
{
    *bytes = tables->region_bytes;
    return tables->region;
}

ligi_entry_info *ligi_tables_entry_infos(const ligi_tables *tables)
{
    return tables->entry_infos;
}

ligi_row_state ligi_tables_state(const ligi_tables *tables, ligi_entry entry)
{
    return ligi_word_state(ligi_tables_word(tables, entry));
}

ligi_tables_counts ligi_tables_counts_get(const ligi_tables *tables)
{
    return (ligi_tables_counts){atomic_load_explicit(&tables->owned, memory_order_relaxed),
                                atomic_load_explicit(&tables->copied, memory_order_relaxed)};
}

void ligi_tables_watch(ligi_tables *tables, ligi_tables_changed_fn changed, void *context)
{
    pthread_mutex_lock(&tables->lock);
    tables->changed = changed;
    tables->changed_context = context;
    pthread_mutex_unlock(&tables->lock);
}
