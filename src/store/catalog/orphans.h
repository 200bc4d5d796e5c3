/* Packs that no model names: what killed writers left, and what became free. */
#ifndef LIGI_ORPHANS_H
#define LIGI_ORPHANS_H

#include "store/catalog/change.h"

/* 1 when a snapshot names the pack or cannot be had. A hint: the commit of a killed process may not
 * show. */
int ligi_orphans_named(lig_store *store, uint64_t pack);
/* 1 when no commit names the pack, including those of killed processes; 0 when one does or the
 * catalog cannot be asked. The caller has claimed the pack, and 1 holds until that claim ends; the
 * thread has ended its snapshots. */
int ligi_orphans_unnamed(lig_store *store, uint64_t pack);

/* 1 when it is a whole pack of this store, named or not. */
int ligi_orphans_owned(lig_store *store, uint64_t pack);

/* Removes packs that the catalog does not contain and that are not being written, and counts
 * them. */
lig_status ligi_orphans_remove(lig_store *store, uint64_t *packs, uint64_t *bytes);
/* The same without waiting for long: a process that commits meanwhile may leave some for later. */
lig_status ligi_orphans_tidy(lig_store *store);
/* Likewise, for one pack. */
void ligi_orphans_remove_pack(lig_store *store, uint64_t pack);
/* After a commit that changed these counts: removes the packs that no model names any more, and
 * adds their bytes to *freed (may be NULL). */
void ligi_orphans_remove_dead(lig_store *store, ligi_count *counts, size_t count, uint64_t *freed);

#endif
