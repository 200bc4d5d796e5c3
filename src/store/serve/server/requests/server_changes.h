/* Requests that change models and aliases, and the care of the store. */
#ifndef LIGI_SERVER_CHANGES_H
#define LIGI_SERVER_CHANGES_H

#include "store/catalog/request_table.h"
#include "store/serve/server/server_state.h"

lig_status ligi_served_update_run(ligi_served_call *call);
lig_status ligi_served_alias_run(ligi_served_call *call);
lig_status ligi_served_retire_run(ligi_served_call *call);
lig_status ligi_served_retire_now_run(ligi_served_call *call);
lig_status ligi_served_restore_run(ligi_served_call *call);
lig_status ligi_served_check_run(ligi_served_call *call);
lig_status ligi_served_compact_run(ligi_served_call *call);
lig_status ligi_served_clear_stamps_run(ligi_served_call *call);

/* Calls `act`, whose commit fails if the request was done before. Afterwards once->repeated is 1 if
 * it was. */
typedef lig_status (*ligi_served_act)(ligi_served_call *call, void *context);
lig_status ligi_served_once(ligi_served_call *call, struct ligi_once *once, ligi_served_act act,
                            void *context);
/* The status of a request that ended with `status`; LIG_OK with once->repeated if a run before did
 * it, durably. */
lig_status ligi_served_once_end(lig_store *store, struct ligi_once *once, lig_status status);
/* The request of a job. */
struct ligi_once ligi_served_once_of(const ligi_served_job *job);

#endif
