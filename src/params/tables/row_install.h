/* Rows arrive, leave, and change between replica and owned. The word is changed while the row's
 * sequence is odd, so a concurrent reader retries. */
#ifndef LIGI_ROW_INSTALL_H
#define LIGI_ROW_INSTALL_H

#include "params/rows/table_state.h"
#include "params/tables/table.h"

/* Under the lock: creates the initial row of an entry. */
lig_status ligi_tables_begin_row(ligi_tables *tables, ligi_entry entry);

/* Prefetches for callers that are about to apply the functions below to many entries: `_word`
 * some 16 entries ahead, `_row` some 8 ahead. Any number is valid. `_meet` waits for the data:
 * worth it for some 16 entries in sequence, since a prefetch that misses the TLB is dropped or
 * waits alone. */
void ligi_tables_fetch_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_fetch_row(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_row(const ligi_tables *tables, uint64_t entry);

/* A row arrives. From ABSENT; or from REPLICA and DRAINING, where local pushes that the owner's row
 * lacks are added: `sent` unless `sent_included`, and pending. */
lig_status ligi_tables_install_owned(ligi_tables *tables, ligi_entry entry, uint64_t moves,
                                     const void *body, int sent_included);
/* The same, as a replica; also a newer row from the owner for a REPLICA (or a DRAINING one, which
 * becomes a replica again). With sent_included the sent delta is confirmed. */
lig_status ligi_tables_install_replica(ligi_tables *tables, ligi_entry entry, const void *body,
                                       int sent_included);
/* OWNED to ABSENT: fills `body`, sets the location to (to, moves + 1), returns that count. `body`
 * includes all accesses so far; later ones miss. */
uint64_t ligi_tables_leave(ligi_tables *tables, ligi_entry entry, uint32_t to, void *body);
/* REPLICA to ABSENT, or to DRAINING if something is pending or sent. Returns which. */
ligi_row_state ligi_tables_drop(ligi_tables *tables, ligi_entry entry);

/* REPLICA and DRAINING: pending becomes sent, and fills `delta`; 0 if there was nothing. Not while
 * a delta is sent. The row is not dirty any more. */
int ligi_tables_take_pending(ligi_tables *tables, ligi_entry entry, void *delta);
int ligi_tables_has_pending(const ligi_tables *tables, ligi_entry entry);
int ligi_tables_has_sent(const ligi_tables *tables, ligi_entry entry);
/* The owner has applied what was sent, without a newer row. A DRAINING row with nothing pending
 * ends. Returns the state. */
ligi_row_state ligi_tables_confirm(ligi_tables *tables, ligi_entry entry);

/* OWNED: adds a replica's delta. 1 if the row is SHARED and was not dirty: the caller notes it. */
int ligi_tables_add_delta(ligi_tables *tables, ligi_entry entry, const void *delta);
/* OWNED: writes are noted while others have replicas. Not shared: not dirty either. */
void ligi_tables_share(ligi_tables *tables, ligi_entry entry, int shared);
/* OWNED: fills `body`; the row is not dirty any more. 0 if it was not. */
int ligi_tables_take_fresh(ligi_tables *tables, ligi_entry entry, void *body);

/* OWNED or REPLICA: copies the whole row (0: neither, nothing filled); OWNED: overwrites it (1 if
 * it must be noted as dirty, -1 if it is not here). */
int ligi_tables_get_body(const ligi_tables *tables, ligi_entry entry, void *body);
int ligi_tables_set_body(ligi_tables *tables, ligi_entry entry, const void *body);
/* The initial body of a row. */
void ligi_tables_first_body(const ligi_tables *tables, ligi_entry entry, void *body);

#endif
