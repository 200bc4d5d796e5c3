/* The rows of a node: key -> entry -> word -> row. No net, no clock, no policy: this file is told
 * what to install and what to give up, and does it while workers read and write.
 *
 *   workers   ligi_tables_resolve -> _read, _write        any thread, at any time, no lock
 *   structure _install_*, _leave, _drop, _take_*, ...,     any thread, but one at a time: the
 *             _place_update, _watch                        caller sees to it (its own lock)
 *
 * What is absent is told as a list of misses; who asks whom for them is the caller's. Keys from
 * peers are checked by resolve like any others; bodies and deltas from peers are checked by the
 * caller to have body_bytes, delta_bytes. */
#ifndef LIGI_TABLE_H
#define LIGI_TABLE_H

#include "params/rows/seen_set.h"

#include <ligament/params.h>

#include <stdatomic.h>

typedef struct ligi_tables ligi_tables; /* shared */
typedef uint32_t ligi_entry; /* a key's number on this node; dense keys: the key itself */

/* The two highest bits of a word. */
typedef enum ligi_row_state {
    LIGI_ROW_ABSENT = 0,
    LIGI_ROW_DRAINING =
        1, /* a copy that was given up; a delta of it is not confirmed: accesses wait */
    LIGI_ROW_COPY = 2,
    LIGI_ROW_OWNED = 3
} ligi_row_state;

/* Memory for words and slabs: zeros, page-aligned, hardly any of it ever touched, for peers to map.
 */
typedef struct ligi_region_source {
    lig_status (*make)(void *context, uint64_t bytes, void **memory);
    void (*destroy)(void *context, void *memory, uint64_t bytes);
    void *context;
} ligi_region_source;

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

int ligi_tables_hashed(const ligi_tables *tables);
uint32_t ligi_tables_count(const ligi_tables *tables);
uint32_t ligi_tables_dtype(const ligi_tables *tables);
uint32_t ligi_tables_element_bytes(const ligi_tables *tables);
const char *ligi_tables_name(const ligi_tables *tables, uint32_t table);
/* LIG_E_NOTFOUND names those there are. */
lig_status ligi_tables_find(const ligi_tables *tables, const char *name, uint32_t *table);
int64_t ligi_tables_offset(const ligi_tables *tables, uint32_t table);
uint64_t ligi_tables_key_count(const ligi_tables *tables, uint32_t table);
/* Entries are below this; the sum of key_count. */
uint64_t ligi_tables_entry_limit(const ligi_tables *tables);
/* Those in use: all of them with dense keys. */
uint64_t ligi_tables_entry_count(const ligi_tables *tables);
const lig_params_optimizer *ligi_tables_optimizer(const ligi_tables *tables, uint32_t table);
/* Rows of such a table may be copies (all but Adam's). */
int ligi_tables_copyable(const ligi_tables *tables, ligi_entry entry);

/* The length of all rows of all tables, or 0 when they differ. */
uint32_t ligi_tables_uniform(const ligi_tables *tables);
uint32_t ligi_tables_length(const ligi_tables *tables, ligi_entry entry);
uint32_t ligi_tables_table_of(const ligi_tables *tables, ligi_entry entry);
int64_t ligi_tables_key(const ligi_tables *tables, ligi_entry entry);
/* Without an entry, for any number: -1, and 0, for a key that cannot be. */
int ligi_tables_table_of_key(const ligi_tables *tables, int64_t key);
uint32_t ligi_tables_length_of_key(const ligi_tables *tables, int64_t key);
uint32_t ligi_tables_home(const ligi_tables *tables, int64_t key); /* a node */
/* 1 when the key has an entry here. Never makes one. */
int ligi_tables_known(const ligi_tables *tables, int64_t key, ligi_entry *entry);

/* A row on the wire and in files: its values (length x element bytes), and with an optimizer zeros
 * up to a multiple of 8 and its state. State is in the row's type, float32 for bfloat16: Adagrad
 * sum[length]; rowwise sum[1]; Adam mean[length], square[length], step[1]. */
size_t ligi_tables_body_bytes(const ligi_tables *tables, ligi_entry entry);
size_t ligi_tables_state_at(const ligi_tables *tables,
                            ligi_entry entry); /* its offset in the body */
uint32_t ligi_tables_state_count(const ligi_tables *tables,
                                 ligi_entry entry); /* elements; 0: none */
uint32_t ligi_tables_state_element_bytes(const ligi_tables *tables);
/* What a copy sends: length + state_count elements of the state's type (integers: of the row's
 * type). */
size_t ligi_tables_delta_bytes(const ligi_tables *tables, ligi_entry entry);
size_t ligi_tables_body_bytes_max(const ligi_tables *tables);
size_t ligi_tables_delta_bytes_max(const ligi_tables *tables);

/* Of this node's pushes. */
void ligi_tables_set_lr(ligi_tables *tables, uint32_t table, double lr);
double ligi_tables_get_lr(const ligi_tables *tables, uint32_t table);

/* Where words and rows are; laid out alike on every node, so that a peer's region is known by its
 * first byte. */
void *ligi_tables_region(const ligi_tables *tables, uint64_t *bytes);

/* What is known of an entry besides its row, all of it in one line of the cache: where the row is,
 * and what the one who moves rows keeps of it. */
typedef struct ligi_aside {
    _Atomic uint64_t place; /* the tables': node + 1 above 48 bits of moves; 0: at home, never moved
                             */
    uint64_t yours[3];      /* the caller's; zeros at first */
} ligi_aside;
ligi_aside *ligi_tables_asides(const ligi_tables *tables); /* by entry */

/* --- where rows are --- */

ligi_row_state ligi_tables_state(const ligi_tables *tables, ligi_entry entry);
typedef struct ligi_place {
    uint32_t node;
    uint64_t moves; /* how often the row had moved when it was there */
} ligi_place;
ligi_place ligi_tables_place(const ligi_tables *tables, ligi_entry entry); /* its home at first */
/* Does nothing and returns 0 unless `moves` is greater than what is known. */
int ligi_tables_place_update(ligi_tables *tables, ligi_entry entry, ligi_place place);

typedef struct ligi_tables_counts {
    uint64_t owned, copied; /* rows, now; DRAINING counts as neither */
} ligi_tables_counts;
ligi_tables_counts ligi_tables_counts_get(const ligi_tables *tables);

/* `changed` is told of each change of state from now on, with locks of the tables held: it may call
 * nothing of them but what does not change. One watcher; NULL ends it. */
typedef void (*ligi_tables_changed_fn)(void *context, ligi_entry entry, ligi_row_state state);
void ligi_tables_watch(ligi_tables *tables, ligi_tables_changed_fn changed, void *context);

/* --- workers --- */

typedef struct ligi_miss {
    uint64_t at;       /* of its values, in elements from the start of batch.values */
    uint32_t position; /* of its key */
    ligi_entry entry;
} ligi_miss;

typedef struct ligi_batch {
    const int64_t *keys;
    size_t count;        /* at most UINT32_MAX */
    void *values;        /* read fills, write reads */
    ligi_entry *entries; /* room for `count`; hashed keys only: resolve fills it. Dense: NULL */
    ligi_miss *misses;   /* room for `count`; in the order of keys */
    size_t miss_count;   /* out */
    ligi_entry
        *noted; /* room for `count`; write only: rows that are dirty from now on, and were not */
    size_t noted_count;  /* out; write adds to it */
    size_t copy_count;   /* out: of those that were done, in copies; adds */
    const double *lr;    /* one a table; NULL: this node's */
    ligi_missed *missed; /* write only, with room for `count`: see there; NULL: nothing moves */
} ligi_batch;

typedef enum ligi_write_kind { LIGI_WRITE_PUSH = 0, LIGI_WRITE_SET = 1 } ligi_write_kind;

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
/* 1 when all rows are here (owned or copies) at this moment. After resolve. */
int ligi_tables_all_here(const ligi_tables *tables, const ligi_batch *batch);

/* After resolve. Does what is here and lists the rest: rows that are absent or draining, and for
 * writes that a copy cannot take (set, Adam) copies too. `values` may lie at any address. Where the
 * order of writes matters (set, and optimizers whose steps do not commute) a row that comes while
 * the batch is written is not written either, once it was missed: that is what `missed` is for. */
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

/* --- structure --- */

/* For whoever is about to do something of what follows with many entries: has what belongs to one
 * brought into the cache. `_word` some 16 entries before it is needed, `_row` some 8 before. Any
 * number is fine. To meet is to wait for it: worth it for some 16 entries, one behind another,
 * since a fetch of what the translation buffer does not have is dropped, or waits alone. */
void ligi_tables_fetch_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_fetch_row(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_row(const ligi_tables *tables, uint64_t entry);

/* A row arrives. From ABSENT; or from COPY and DRAINING, where what was pushed here and the owner's
 * row has not is added: `sent` unless `sent_included`, and pending. */
lig_status ligi_tables_install_owned(ligi_tables *tables, ligi_entry entry, uint64_t moves,
                                     const void *body, int sent_included);
/* Likewise, as a copy; also the owner's newer row for a COPY (and for a DRAINING one, which is then
 * a copy again). With sent_included sent is over. */
lig_status ligi_tables_install_copy(ligi_tables *tables, ligi_entry entry, const void *body,
                                    int sent_included);
/* OWNED to ABSENT: fills `body`, sets the place to (to, moves + 1), returns that count. `body` has
 * all that was done here; what comes later misses. */
uint64_t ligi_tables_leave(ligi_tables *tables, ligi_entry entry, uint32_t to, void *body);
/* COPY to ABSENT, or to DRAINING when something is pending or sent. Returns which. */
ligi_row_state ligi_tables_drop(ligi_tables *tables, ligi_entry entry);

/* COPY and DRAINING: pending becomes sent, and fills `delta`; 0 when there was nothing. Not while
 * something is sent. The row is not dirty any more. */
int ligi_tables_take_pending(ligi_tables *tables, ligi_entry entry, void *delta);
int ligi_tables_has_pending(const ligi_tables *tables, ligi_entry entry);
int ligi_tables_has_sent(const ligi_tables *tables, ligi_entry entry);
/* The owner has what was sent, without a newer row. DRAINING with nothing pending ends. Returns the
 * state. */
ligi_row_state ligi_tables_confirm(ligi_tables *tables, ligi_entry entry);

/* OWNED: adds what a copy sent. 1 when the row is SHARED and was not dirty: the caller notes it. */
int ligi_tables_add_delta(ligi_tables *tables, ligi_entry entry, const void *delta);
/* OWNED: writes are noted while others have copies. Not shared: not dirty either. */
void ligi_tables_share(ligi_tables *tables, ligi_entry entry, int shared);
/* OWNED: fills `body`; the row is not dirty any more. 0 when it was not. */
int ligi_tables_take_fresh(ligi_tables *tables, ligi_entry entry, void *body);

/* OWNED or COPY: the whole row as it is (0: neither, nothing filled); OWNED: overwritten (1 when it
 * is to be noted as dirty, -1 when it is not here). */
int ligi_tables_get_body(const ligi_tables *tables, ligi_entry entry, void *body);
int ligi_tables_set_body(ligi_tables *tables, ligi_entry entry, const void *body);
/* The body a row begins with. */
void ligi_tables_first_body(const ligi_tables *tables, ligi_entry entry, void *body);

#endif
