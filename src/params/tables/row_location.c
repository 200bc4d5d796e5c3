#include "params/tables/row_location.h"

#include "params/rows/table_state.h"
#include "params/tables/key_home.h"
#include "params/tables/table_info.h"

#define MOVES_BITS 48

ligi_row_location ligi_tables_location(const ligi_tables *tables, ligi_entry entry)
{
    uint64_t location =
        atomic_load_explicit(&tables->entry_infos[entry].location, memory_order_acquire);

    if (location == 0)
        return (ligi_row_location){ligi_tables_home(tables, ligi_tables_key(tables, entry)), 0};
    return (ligi_row_location){(uint32_t)(location >> MOVES_BITS) - 1,
                               location & ((UINT64_C(1) << MOVES_BITS) - 1)};
}

int ligi_tables_location_update(ligi_tables *tables, ligi_entry entry, ligi_row_location location)
{
    _Atomic uint64_t *at = &tables->entry_infos[entry].location;
    uint64_t moves_mask = (UINT64_C(1) << MOVES_BITS) - 1;
    uint64_t was = atomic_load_explicit(at, memory_order_relaxed);
    uint64_t is = (uint64_t)(location.node + 1) << MOVES_BITS | (location.moves & moves_mask);

    if (location.node >= tables->node_count || (was & moves_mask) >= (is & moves_mask))
        return 0;
    atomic_store_explicit(at, is, memory_order_release);
    return 1;
}
