/* Requests that change nothing. */
#ifndef LIGI_SERVER_LOOKUPS_H
#define LIGI_SERVER_LOOKUPS_H

#include "store/serve/message/served_models.h"
#include "store/serve/server/server_state.h"

lig_status ligi_served_info_run(ligi_served_call *call);
lig_status ligi_served_resolve_run(ligi_served_call *call);
lig_status ligi_served_models_run(ligi_served_call *call);
lig_status ligi_served_lineage_run(ligi_served_call *call);
lig_status ligi_served_stat_run(ligi_served_call *call);
lig_status ligi_served_pack_size_run(ligi_served_call *call);
lig_status ligi_served_read_run(ligi_served_call *call);
lig_status ligi_served_alias_at_run(ligi_served_call *call);
lig_status ligi_served_find_run(ligi_served_call *call);
lig_status ligi_served_stamps_run(ligi_served_call *call);

/* 1 if releasing what has this number removes nothing: the store has not changed since it was
 * resolved. */
int ligi_served_release_is_short(ligi_served_call *call, uint64_t number);

/* A model as it is sent; borrows from it. For a limited role its record is sealed again, without
 * the store's key: the model must be the request's own. */
ligi_served_model ligi_served_model_of(const ligi_served_session *session, const lig_model *model);
/* Takes the ref over, whose model has been written to the reply. Only grants of limited roles look
 * at the tensors of a ref: others' are freed. */
lig_status ligi_served_hold_ref(ligi_served_session *session, lig_ref *ref, uint64_t *number);
/* Releases a lig_ref; names the kind of what a session holds. */
void ligi_served_ref_release(void *ref);
/* The same for a lig_match *[1]. */
void ligi_served_match_release(void *match);

#endif
