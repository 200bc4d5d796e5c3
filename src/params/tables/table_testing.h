/* Helpers for the tests of tables. */
#ifndef LIGI_TABLE_TESTING_H
#define LIGI_TABLE_TESTING_H

#include "base/test.h"
#include "params/tables/row_access.h"
#include "params/tables/table.h"

#include <stdlib.h>

enum { ROOM = 4096 };

typedef struct table_room { /* a batch with room for ROOM keys */
    ligi_batch batch;
    ligi_entry entries[ROOM], noted[ROOM];
    ligi_miss misses[ROOM];
} table_room;

static inline ligi_batch *batch_of(table_room *room, const int64_t *keys, size_t count,
                                   void *values)
{
    room->batch = (ligi_batch){.keys = keys,
                               .count = count,
                               .values = values,
                               .entries = room->entries,
                               .misses = room->misses,
                               .noted = room->noted};
    return &room->batch;
}

static inline ligi_tables *tables_of(const lig_params_table *tables, uint32_t count, uint32_t dtype,
                                     uint32_t rank, uint32_t nodes)
{
    ligi_tables_options options = {tables, count, dtype, 0, rank, nodes, NULL};
    ligi_tables *made = NULL;

    assert_ok(ligi_tables_create(&made, &options));
    return made;
}

static inline size_t read_keys(ligi_tables *tables, const int64_t *keys, size_t count, void *values)
{
    table_room *room = malloc(sizeof *room);
    uint64_t elements;

    assert_non_null(room);
    assert_ok(ligi_tables_resolve(tables, batch_of(room, keys, count, values), &elements));
    ligi_tables_read(tables, &room->batch);
    size_t missing = room->batch.miss_count;
    free(room);
    return missing;
}

/* Both return how many are missing. */
static inline size_t write_keys(ligi_tables *tables, ligi_write_kind kind, const int64_t *keys,
                                size_t count, const void *values)
{
    table_room *room = malloc(sizeof *room);
    uint64_t elements;

    assert_non_null(room);
    assert_ok(ligi_tables_resolve(tables, batch_of(room, keys, count, (void *)values), &elements));
    ligi_tables_write(tables, kind, &room->batch);
    size_t missing = room->batch.miss_count;
    free(room);
    return missing;
}

#endif
