/* A resolved model: its description, and the pins that keep its bytes (include/ligament/ref.h). */
#ifndef LIGI_RESOLVED_MODEL_H
#define LIGI_RESOLVED_MODEL_H

#include "store/load/model.h"
#include "store/load/pins.h"

struct lig_ref {
    lig_store *store; /* held */
    ligi_model *model;
    ligi_pin *pin;
    ligi_lease lease; /* in a remote store: the server's pin */
    ligi_maps maps;
    uint64_t version; /* of a catalog that referred to its packs after they were pinned */
};

enum { LIGI_REF_HELD = 1, LIGI_REF_SHOWN = 2 };

/* The model under `name` or, when that is NULL, with this id. HELD: its bytes are kept until
 * release. SHOWN: its tensors have fingerprints, because they are returned to the caller. */
lig_status ligi_ref_open(lig_store *store, const char *name, uint64_t id, int flags, lig_ref **out);
/* The model with this id in an open view, without its tensors; not yet held. LIG_E_NOTFOUND when it
 * was replaced or retired. */
lig_status ligi_ref_at(const ligi_catalog_view *view, uint64_t id, lig_ref **out);
/* A ref of a loaded description; takes ownership of it, even on failure. Not yet held. */
lig_status ligi_ref_make(lig_store *store, ligi_model *model, lig_ref **out);
/* Pins its packs, or maps them if nothing can be written (read-only, or disk full). LIG_E_NOTFOUND
 * with *gone: one of them does not exist. */
lig_status ligi_ref_hold(lig_ref *ref, int *gone);
/* Pins its packs. The caller then checks that they still exist. */
lig_status ligi_ref_pin(lig_ref *ref, int64_t lease_ns);
/* Releases the packs, and removes those that lost their last model meanwhile. */
void ligi_ref_unpin(lig_ref *ref);

/* LIG_E_CLOSED in a forked child. */
lig_status ligi_ref_usable(const lig_ref *ref);
/* The result of a call that found a pack missing: LIG_E_CORRUPT if the catalog still has the model,
 * otherwise LIG_E_NOTFOUND. */
lig_status ligi_ref_lost(const lig_ref *ref);

/* Calls `act` with the model named `name`. If it fails because a pack was removed (act sets *gone),
 * the name is resolved again: the model was replaced or retired meanwhile. A call that reads much
 * passes LIGI_REF_HELD. A call that opens each pack once omits it; the retry then holds the
 * model. */
typedef lig_status (*ligi_act)(void *context, const lig_ref *ref, int *gone);
lig_status ligi_ref_with(lig_store *store, const char *name, int flags, ligi_act act,
                         void *context);

#endif
