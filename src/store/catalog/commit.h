/* The only commit point: a change of the catalog, whole or not at all. */
#ifndef LIGI_COMMIT_H
#define LIGI_COMMIT_H

#include "store/catalog/change.h"

/* Builds the change for one attempt. Called again with a new view if another process has
 * committed meanwhile, or if the view lacked the commit of a killed process. */
typedef lig_status (*ligi_edit)(void *context, const ligi_catalog_view *view, ligi_change *change);

/* Commits what `edit` makes (nothing, when it makes nothing), then removes the packs that lost
 * their last model; *freed (may be NULL) counts their bytes. */
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

/* The same, otherwise than on a caller's thread, or for an edit that takes long. */
lig_status ligi_change_commit_as(const ligi_commit *commit);

#endif
