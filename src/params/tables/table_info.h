/* Constant properties of tables, and the state of rows. */
#ifndef LIGI_TABLE_INFO_H
#define LIGI_TABLE_INFO_H

#include "params/tables/table.h"

int ligi_tables_hashed(const ligi_tables *tables);
uint32_t ligi_tables_count(const ligi_tables *tables);
uint32_t ligi_tables_dtype(const ligi_tables *tables);
uint32_t ligi_tables_element_bytes(const ligi_tables *tables);
const char *ligi_tables_name(const ligi_tables *tables, uint32_t table);
/* LIG_E_NOTFOUND lists the tables. */
lig_status ligi_tables_find(const ligi_tables *tables, const char *name, uint32_t *table);
int64_t ligi_tables_offset(const ligi_tables *tables, uint32_t table);
uint64_t ligi_tables_key_count(const ligi_tables *tables, uint32_t table);
/* Entries are below this; the sum of key_count. */
uint64_t ligi_tables_entry_limit(const ligi_tables *tables);
/* Entries in use: all of them with dense keys. */
uint64_t ligi_tables_entry_count(const ligi_tables *tables);
const lig_params_optimizer *ligi_tables_optimizer(const ligi_tables *tables, uint32_t table);
/* Whether rows of the table can be replicated (all but Adam's). */
int ligi_tables_replicable(const ligi_tables *tables, ligi_entry entry);

/* The length of all rows of all tables, or 0 when they differ. */
uint32_t ligi_tables_uniform(const ligi_tables *tables);
uint32_t ligi_tables_length(const ligi_tables *tables, ligi_entry entry);
int64_t ligi_tables_key(const ligi_tables *tables, ligi_entry entry);
/* Without an entry, for any number: -1 and 0 for an invalid key. */
int ligi_tables_table_of_key(const ligi_tables *tables, int64_t key);
uint32_t ligi_tables_length_of_key(const ligi_tables *tables, int64_t key);
/* 1 if the key has an entry here. Never creates one. */
int ligi_tables_known(const ligi_tables *tables, int64_t key, ligi_entry *entry);

/* A row on the wire and in files: its values (length x element bytes), and with an optimizer zeros
 * up to a multiple of 8 and its state. State is in the row's type, float32 for bfloat16: Adagrad
 * sum[length]; rowwise sum[1]; Adam mean[length], square[length], step[1]. */
size_t ligi_tables_body_bytes(const ligi_tables *tables, ligi_entry entry);
uint32_t ligi_tables_state_element_bytes(const ligi_tables *tables);
/* What a replica sends: length + state_count elements of the state's type (integers: of the row's
 * type). */
size_t ligi_tables_delta_bytes(const ligi_tables *tables, ligi_entry entry);
size_t ligi_tables_body_bytes_max(const ligi_tables *tables);
size_t ligi_tables_delta_bytes_max(const ligi_tables *tables);

/* For pushes of this node. */
void ligi_tables_set_lr(ligi_tables *tables, uint32_t table, double lr);
double ligi_tables_get_lr(const ligi_tables *tables, uint32_t table);

/* Where words and rows are; the layout is the same on every node, so that a peer's region is
 * described by its base address. */
void *ligi_tables_region(const ligi_tables *tables, uint64_t *bytes);

ligi_entry_info *ligi_tables_entry_infos(const ligi_tables *tables); /* by entry */

ligi_row_state ligi_tables_state(const ligi_tables *tables, ligi_entry entry);
ligi_tables_counts ligi_tables_counts_get(const ligi_tables *tables);

/* `changed` is called at each change of state from now on, with locks of the tables held: it may
 * use only the constants of the tables. One watcher; NULL ends it. */
void ligi_tables_watch(ligi_tables *tables, ligi_tables_changed_fn changed, void *context);

#endif
