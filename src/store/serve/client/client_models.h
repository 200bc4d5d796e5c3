/* Models received from a server: refs, lists, matches. */
#ifndef LIGI_CLIENT_MODELS_H
#define LIGI_CLIENT_MODELS_H

#include "store/load/resolved_model.h"
#include "store/serve/client/client_request.h"
#include "store/serve/message/served_models.h"

/* Members of ligi_remote_ops. */
lig_status ligi_client_resolve(lig_store *store, const ligi_model_key *key, int flags,
                               lig_ref **ref);
void ligi_client_ref_release(lig_store *store, ligi_lease lease);
lig_status ligi_client_models(lig_store *store, const lig_query *query, lig_model ***models,
                              size_t *count);
lig_status ligi_client_lineage(lig_store *store, const ligi_model_key *key, lig_lineage **lineage);

/* A model with its tensors from a reply. */
lig_status ligi_client_model(lig_store *store, const ligi_served_model *from, ligi_model **model);
/* A ref to it, with the lease in the reply of `call`. */
lig_status ligi_client_ref(lig_store *store, const ligi_client_call *call,
                           const ligi_served_model *from, lig_ref **ref);

static inline ligi_client *ligi_client_of(const lig_store *store)
{
    return store->volume->self;
}

#endif
