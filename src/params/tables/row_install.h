/* Rows come, go, become replicas and owned ones again. The word is flipped while the row's sequence
 * is odd, so whoever read it before looks again. */
#ifndef LIGI_ROW_INSTALL_H
#define LIGI_ROW_INSTALL_H

#include "params/rows/table_state.h"
#include "params/tables/table.h"

/* Under the lock: makes the row an entry begins with. */
lig_status ligi_tables_begin_row(ligi_tables *tables, ligi_entry entry);

/* For whoever is about to do something of what follows with many entries: has what belongs to one
 * brought into the cache. `_word` some 16 entries before it is needed, `_row` some 8 before. Any
 * number is fine. To meet is to wait for it: worth it for some 16 entries, one behind another,
 * since a fetch of what the translation buffer does not have is dropped, or waits alone. */
void ligi_tables_fetch_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_fetch_row(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_word(const ligi_tables *tables, uint64_t entry);
void ligi_tables_meet_row(const ligi_tables *tables, uint64_t entry);

/* A row arrives. From ABSENT; or from REPLICA and DRAINING, where what was pushed here and the
 * owner's row has not is added: `sent` unless `sent_included`, and pending. */
lig_status ligi_tables_install_owned(ligi_tables *tables, ligi_entry entry, uint64_t moves,
                                     const void *body, int sent_included);
/* Likewise, as a replica; also the owner's newer row for a REPLICA (and for a DRAINING one, which
 * is then a replica again). With sent_included sent is over. */
lig_status ligi_tables_install_replica(ligi_tables *tables, ligi_entry entry, const void *body,
                                       int sent_included);
/* OWNED to ABSENT: fills `body`, sets the place to (to, moves + 1), returns that count. `body` has
 * all that was done here; what comes later misses. */
uint64_t ligi_tables_leave(ligi_tables *tables, ligi_entry entry, uint32_t to, void *body);
/* REPLICA to ABSENT, or to DRAINING when something is pending or sent. Returns which. */
ligi_row_state ligi_tables_drop(ligi_tables *tables, ligi_entry entry);

/* REPLICA and DRAINING: pending becomes sent, and fills `delta`; 0 when there was nothing. Not
 * while something is sent. The row is not dirty any more. */
int ligi_tables_take_pending(ligi_tables *tables, ligi_entry entry, void *delta);
int ligi_tables_has_pending(const ligi_tables *tables, ligi_entry entry);
int ligi_tables_has_sent(const ligi_tables *tables, ligi_entry entry);
/* The owner has what was sent, without a newer row. DRAINING with nothing pending ends. Returns the
 * state. */
ligi_row_state ligi_tables_confirm(ligi_tables *tables, ligi_entry entry);

/* OWNED: adds what a replica sent. 1 when the row is SHARED and was not dirty: the caller notes
 * it. */
int ligi_tables_add_delta(ligi_tables *tables, ligi_entry entry, const void *delta);
/* OWNED: writes are noted while others have replicas. Not shared: not dirty either. */
void ligi_tables_share(ligi_tables *tables, ligi_entry entry, int shared);
/* OWNED: fills `body`; the row is not dirty any more. 0 when it was not. */
int ligi_tables_take_fresh(ligi_tables *tables, ligi_entry entry, void *body);

/* OWNED or REPLICA: the whole row as it is (0: neither, nothing filled); OWNED: overwritten (1
 * when it is to be noted as dirty, -1 when it is not here). */
int ligi_tables_get_body(const ligi_tables *tables, ligi_entry entry, void *body);
int ligi_tables_set_body(ligi_tables *tables, ligi_entry entry, const void *body);
/* The body a row begins with. */
void ligi_tables_first_body(const ligi_tables *tables, ligi_entry entry, void *body);

#endif
