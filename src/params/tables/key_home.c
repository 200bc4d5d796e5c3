#include "params/tables/key_home.h"

#include "params/rows/table_state.h"

uint32_t ligi_tables_home(const ligi_tables *tables, int64_t key)
{
    uint64_t number = tables->hashed ? ligi_key_index_hash(key) : (uint64_t)key;

    return (uint32_t)(number % tables->node_count);
}
