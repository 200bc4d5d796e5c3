/* The only commit point: applies a change of the catalog atomically. */
#ifndef LIGI_COMMIT_H
#define LIGI_COMMIT_H

#include "store/catalog/change.h"

/* Builds the change for one attempt. Called again with a new view if another process has
 * committed meanwhile, or if the view lacked the commit of a killed process. */
typedef lig_status (*ligi_edit)(void *context, const ligi_catalog_view *view, ligi_change *change);

/* Commits the change built by `edit`, if it is not empty, then removes the packs that lost their
 * last model; *freed (may be NULL) counts their bytes. */
lig_status ligi_change_commit(lig_store *store, ligi_edit edit, void *context, uint64_t *freed);

typedef struct ligi_commit {
    lig_store *store;
    ligi_edit edit;
    void *context;
    uint64_t *freed;
    const ligi_interrupt *interrupt; /* NULL: the store's */
    int slow; /* the edit takes long: others commit meanwhile, unless they did so several times */
    lig_catalog_pending *pending; /* may take a commit that changes the use of no pack; or NULL */
} ligi_commit;

/* The same, with options for library threads and for edits that take long. */
lig_status ligi_change_commit_as(const ligi_commit *commit);

#endif
