/* The rows of a node: key -> entry -> word -> row. No net, no clock, no policy: this file is told
 * what to install and what to give up, and does it while workers read and write.
 *
 *   workers   ligi_tables_resolve -> _read, _write        any thread, at any time, no lock
 *   structure _install_*, _leave, _drop, _take_*, ...,     any thread, but one at a time: the
 *             _location_update, _watch                     caller sees to it (its own lock)
 *
 * What is absent is told as a list of misses; who asks whom for them is the caller's. Keys from
 * peers are checked by resolve like any others; bodies and deltas from peers are checked by the
 * caller to have body_bytes, delta_bytes. */
#ifndef LIGI_TABLE_H
#define LIGI_TABLE_H

#include "params/rows/row_types.h"

typedef struct ligi_tables_options { /* borrowed until create returns */
    const lig_params_table *tables;
    uint32_t table_count;
    uint32_t dtype;
    uint32_t flags; /* LIG_PARAMS_HASHED; others are ignored */
    uint32_t rank, node_count;
    const ligi_region_source *source; /* NULL: anonymous memory in huge pages */
} ligi_tables_options;

/* Checks all there is to check in tables and dtype, and makes the rows whose home is here. */
lig_status ligi_tables_create(ligi_tables **tables, const ligi_tables_options *options);
void ligi_tables_destroy(ligi_tables *tables); /* NULL is fine */
/* In a forked child: like destroy, but the region is left to whoever made it. */
void ligi_tables_forget(ligi_tables *tables);

/* --- what does not change --- */

/* --- where rows are --- */

typedef struct ligi_tables_counts {
    uint64_t owned, copied; /* rows, now; DRAINING counts as neither */
} ligi_tables_counts;

/* --- workers --- */

/* --- structure --- */

#endif
