#include "params/node/params_batch.h"

#include "params/tables/table_info.h"

#include <stdlib.h>

static void free_lists(ligi_batch *scratch)
{
    free(scratch->entries);
    free(scratch->misses);
    free(scratch->noted);
    scratch->entries = scratch->noted = NULL;
    scratch->misses = NULL;
}

void ligi_params_batch_fini(lig_params_worker *worker)
{
    free_lists(&worker->scratch);
    ligi_seen_set_fini(&worker->seen_set);
}

lig_status ligi_params_batch_reserve(lig_params_worker *worker, size_t count)
{
    ligi_batch *scratch = &worker->scratch;
    size_t room = worker->scratch_room < 64 ? 64 : worker->scratch_room;
    if (count <= worker->scratch_room)
        return LIG_OK;
    while (room < count)
        room *= 2;
    worker->scratch_room = 0;
    free_lists(scratch);
    if (ligi_tables_hashed(worker->node->tables))
        LIG_TRY(ligi_alloc(&scratch->entries, room * sizeof *scratch->entries, "a batch of keys"));
    LIG_TRY(ligi_alloc(&scratch->misses, room * sizeof *scratch->misses, "a batch of keys"));
    LIG_TRY(ligi_alloc(&scratch->noted, room * sizeof *scratch->noted, "a batch of keys"));
    if (!ligi_node_alone(worker->node)) {
        LIG_TRY(ligi_seen_set_reserve(&worker->seen_set, room));
        scratch->seen_set = &worker->seen_set;
    }
    worker->scratch_room = room;
    return LIG_OK;
}
