/* Accesses by workers. The fast path over one slab is in row_sweeps.h; this is the rest: keys, rows
 * of several slabs, rows that are being written, and rows of peers. */
#ifndef LIGI_ROW_ACCESS_H
#define LIGI_ROW_ACCESS_H

#include "params/tables/table.h"

/* Rejects invalid keys, and fills *elements with the sum of the rows' lengths. Hashed keys get
 * entries, and rows if their home is here: all of them, or none (LIG_E_LIMIT: more than the table's
 * key_count). */
lig_status ligi_tables_resolve(ligi_tables *tables, ligi_batch *batch, uint64_t *elements);
/* The second half: hashed keys that were checked. */
lig_status ligi_tables_enter(ligi_tables *tables, const int64_t *keys, size_t count,
                             ligi_entry *entries);
/* One key. */
lig_status ligi_tables_entry(ligi_tables *tables, int64_t key, ligi_entry *entry);
/* The same for keys that need no entry: checks and sums. */
lig_status ligi_tables_lengths(const ligi_tables *tables, const int64_t *keys, size_t count,
                               uint64_t *elements);
/* 1 if all rows are local (owned or replicas) at this moment. After resolve. */
int ligi_tables_all_here(const ligi_tables *tables, const ligi_batch *batch);

/* After resolve. Accesses the local rows and lists the rest: absent or draining rows, and for
 * writes that a replica cannot take (set, Adam) replicas too. `values` may be unaligned. Where the
 * order of writes matters (set, and optimizers whose steps do not commute), a row that was missed
 * once stays missed even if it arrives during the batch: that is what `missed` is for. */
void ligi_tables_read(const ligi_tables *tables, ligi_batch *batch);
void ligi_tables_write(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch);
/* The same for batch->misses only; those that are still remote stay, in order. */
void ligi_tables_read_misses(const ligi_tables *tables, ligi_batch *batch);
void ligi_tables_write_misses(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch);
/* Reads misses located at `node` (UINT32_MAX: any) from that node's region as mapped by this
 * process: dense keys, rows it owns, and only those that are ABSENT here (not draining). Regardless
 * of the region's contents, this terminates and stays within it. */
void ligi_tables_read_peer(const ligi_tables *tables, const void *region, uint32_t node,
                           ligi_batch *batch);

#endif
