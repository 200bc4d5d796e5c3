/* The rows of a node: key -> entry -> word -> row. No net, no clock, no policy: the caller decides
 * what is installed and dropped, and this file does it while workers read and write.
 * 
 *   workers   ligi_tables_resolve -> _read, _write        any thread, at any time, no lock
 *   structure _install_*, _leave, _drop, _take_*, ...,     any thread, but one at a time: the
 *             _location_update, _watch                     caller serialises them (its own lock)
 * 
 * Remote rows are returned as a list of misses; the caller requests them. Keys from peers are
 * checked by resolve like any others; the caller checks that bodies and deltas from peers have
 * body_bytes, delta_bytes. */
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

/* Checks tables and dtype completely, and creates the rows whose home is here. */
lig_status ligi_tables_create(ligi_tables **tables, const ligi_tables_options *options);
void ligi_tables_destroy(ligi_tables *tables); /* NULL is valid */
/* In a forked child: like destroy, but the region is left to the parent. */
void ligi_tables_forget(ligi_tables *tables);

/* --- constants --- */

/* --- locations of rows --- */

typedef struct ligi_tables_counts {
    uint64_t owned, copied; /* current numbers of rows; DRAINING counts as neither */
} ligi_tables_counts;

/* --- workers --- */

/* --- structure --- */

#endif
