/* The events of a volume's commits, oldest first, within the limits below. */
#ifndef LIGI_MEM_EVENTS_H
#define LIGI_MEM_EVENTS_H

#include "backend/mem/mem.h"

/* Beyond either limit, the oldest commits are dropped; the latest is kept regardless of its
 * size. */
#define LIGI_MEM_EVENTS_BYTES ((size_t)1 << 20)
#define LIGI_MEM_EVENTS_MAX 65536

/* The events of one commit, copied; *block is NULL if it has none. */
lig_status ligi_mem_events_make(const lig_catalog_edit *edit, ligi_mem_events **block);
void ligi_mem_events_release(ligi_mem_events *block);

/* The volume's lock is held. Reserves room for one more block, so that `add`, which takes ownership
 * of the block (NULL: none), cannot fail. */
lig_status ligi_mem_events_reserve(ligi_mem_volume *volume);
void ligi_mem_events_add(ligi_mem_volume *volume, ligi_mem_events *block, uint64_t version);
void ligi_mem_events_fini(ligi_mem_volume *volume);

/* The volume's members. */
lig_status ligi_mem_events_visit(void *self, uint64_t since, lig_catalog_visit visit,
                                 void *context);
lig_status ligi_mem_events_wait(void *self, uint64_t since, int64_t timeout_ns);

#endif
