/* Waiting for processes that commit: in slices, so that a caller can be interrupted while another
 * process is stopped in its commit. */
#ifndef LIGI_CATALOG_WAIT_H
#define LIGI_CATALOG_WAIT_H

#include "store/handle.h"

/* How long the removal of unused packs waits; after that it is left for later. */
#define LIGI_CATALOG_TIDY_NS INT64_C(1000000000)

/* The volume's catalog_lock, until `end_ns` (ligi_now_ns). LIG_E_TIMEOUT names the process that
 * holds it; LIG_E_CLOSED when `interrupt` (may be NULL) ended the wait. */
lig_status ligi_catalog_lock(lig_store *store, const ligi_interrupt *interrupt, int64_t end_ns);

/* The volume's catalog_settle, with the same failures. The thread does not hold the lock. */
lig_status ligi_catalog_settle(lig_store *store, const ligi_interrupt *interrupt,
                               int64_t timeout_ns);

#endif
