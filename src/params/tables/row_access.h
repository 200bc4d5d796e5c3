/* What workers do. The first try over one slab is in row_sweeps.h; here are the rest: keys, rows of
 * several slabs, rows that somebody is writing, and those of peers. */
#ifndef LIGI_ROW_ACCESS_H
#define LIGI_ROW_ACCESS_H

#include "params/tables/table.h"

/* Refuses keys that cannot be, and fills *elements: what their rows have together. Hashed keys get
 * entries, and rows where their home is here: all of them, or none (LIG_E_LIMIT: more than the
 * table has). */
lig_status ligi_tables_resolve(ligi_tables *tables, ligi_batch *batch, uint64_t *elements);
/* The second half of it: hashed keys that were looked at. */
lig_status ligi_tables_enter(ligi_tables *tables, const int64_t *keys, size_t count,
                             ligi_entry *entries);
/* One key. */
lig_status ligi_tables_entry(ligi_tables *tables, int64_t key, ligi_entry *entry);
/* Same for keys that need no entry: checks, and sums up. */
lig_status ligi_tables_lengths(const ligi_tables *tables, const int64_t *keys, size_t count,
                               uint64_t *elements);
/* 1 when all rows are here (owned or replicas) at this moment. After resolve. */
int ligi_tables_all_here(const ligi_tables *tables, const ligi_batch *batch);

/* After resolve. Does what is here and lists the rest: rows that are absent or draining, and for
 * writes that a replica cannot take (set, Adam) replicas too. `values` may lie at any address.
 * Where the order of writes matters (set, and optimizers whose steps do not commute) a row that
 * comes while the batch is written is not written either, once it was missed: that is what
 * `missed` is for. */
void ligi_tables_read(const ligi_tables *tables, ligi_batch *batch);
void ligi_tables_write(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch);
/* The same for batch->misses alone; those that are still not here stay, in order. */
void ligi_tables_read_misses(const ligi_tables *tables, ligi_batch *batch);
void ligi_tables_write_misses(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch);
/* Misses whose place is `node` (UINT32_MAX: any), read from the region of that node as this process
 * sees it: dense keys, rows it owns, and only those that are ABSENT here (not draining). Whatever
 * stands there, this ends and stays within the region. */
void ligi_tables_read_peer(const ligi_tables *tables, const void *region, uint32_t node,
                           ligi_batch *batch);

#endif
