/* Packs that no model refers to: leftovers of killed writers, and packs that became free. */
#ifndef LIGI_ORPHANS_H
#define LIGI_ORPHANS_H

#include "store/catalog/change.h"

/* 1 if a snapshot contains the pack, or is not available. A hint: the commit of a killed process
 * may be missing. */
int ligi_orphans_named(lig_store *store, uint64_t pack);
/* 1 if no commit contains the pack, including those of killed processes; 0 if one does or the
 * catalog cannot be read. The caller has claimed the pack, and the result 1 is valid until that
 * claim ends; the thread has ended its snapshots. */
int ligi_orphans_unnamed(lig_store *store, uint64_t pack);

/* 1 if it is a complete pack of this store, whether a model refers to it or not. */
int ligi_orphans_owned(lig_store *store, uint64_t pack);

/* Removes packs that the catalog does not contain and that are not being written, and counts
 * them. */
lig_status ligi_orphans_remove(lig_store *store, uint64_t *packs, uint64_t *bytes);
/* The same without waiting for long: a process that commits meanwhile may leave some for later. */
lig_status ligi_orphans_tidy(lig_store *store);
/* Likewise, for one pack. */
void ligi_orphans_remove_pack(lig_store *store, uint64_t pack);
/* After a commit that changed these counts: removes the packs that no model refers to any more, and
 * adds their bytes to *freed (may be NULL). */
void ligi_orphans_remove_dead(lig_store *store, ligi_count *counts, size_t count, uint64_t *freed);

#endif
