/* Types that tables of rows are made of. */
#ifndef LIGI_ROW_TYPES_H
#define LIGI_ROW_TYPES_H

#include "base/threads/team.h"
#include "params/rows/seen_set.h"

#include <ligament/params.h>

#include <stdatomic.h>

typedef struct ligi_tables ligi_tables; /* shared */
typedef uint32_t ligi_entry; /* a key's number on this node; dense keys: the key itself */

/* The two highest bits of a word. */
typedef enum ligi_row_state {
    LIGI_ROW_ABSENT = 0,
    LIGI_ROW_DRAINING = 1, /* a dropped replica with an unconfirmed delta: accesses wait */
    LIGI_ROW_REPLICA = 2,
    LIGI_ROW_OWNED = 3
} ligi_row_state;

/* Memory for words and slabs: zeroed, page-aligned, mostly untouched; peers may map it. */
typedef struct ligi_region_source {
    lig_status (*make)(void *context, uint64_t bytes, void **memory);
    void (*destroy)(void *context, void *memory, uint64_t bytes);
    void *context;
} ligi_region_source;

/* The metadata of an entry, in one cache line: where the row is, and the placement state. */
typedef struct ligi_entry_info {
    _Atomic uint64_t
        location;      /* the tables': node + 1 above 48 bits of moves; 0: at home, never moved */
    uint64_t yours[3]; /* the caller's; initially zero */
} ligi_entry_info;

typedef struct ligi_row_location {
    uint32_t node;
    uint64_t moves; /* how often the row had moved by then */
} ligi_row_location;

/* Called at a change of state: see ligi_tables_watch. */
typedef void (*ligi_tables_changed_fn)(void *context, ligi_entry entry, ligi_row_state state);

typedef struct ligi_miss {
    uint64_t at;       /* offset of its values, in elements from batch.values */
    uint32_t position; /* of its key */
    ligi_entry entry;
} ligi_miss;

typedef struct ligi_batch {
    const int64_t *keys;
    size_t count;            /* at most UINT32_MAX */
    void *values;            /* read fills, write reads */
    ligi_entry *entries;     /* `count` entries; hashed keys only, filled by resolve. Dense: NULL */
    ligi_miss *misses;       /* room for `count`; in the order of keys */
    size_t miss_count;       /* out */
    ligi_entry *noted;       /* room for `count`; write only: rows that this write made dirty */
    size_t noted_count;      /* out; write adds to it */
    size_t replica_count;    /* out: accesses of replicas; adds */
    ligi_team *team;         /* may share large batches; NULL: the caller's thread alone */
    int distinct;            /* no key occurs twice */
    const double *lr;        /* one per table; NULL: this node's */
    ligi_seen_set *seen_set; /* write only, with room for `count`: see ligi_tables_write; NULL: rows
                              * do not move */
} ligi_batch;

typedef enum ligi_write_kind { LIGI_WRITE_PUSH = 0, LIGI_WRITE_SET = 1 } ligi_write_kind;

#endif
