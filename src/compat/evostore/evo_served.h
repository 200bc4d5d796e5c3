/* Operations of a served store's server: timestamps and shutdown. All functions are called under
 * the one lock. */
#ifndef LIGI_EVO_SERVED_H
#define LIGI_EVO_SERVED_H

#include "evo_state.h"

/* Whether all stores, open or not, are served. */
int ligi_evo_served_all(const ligi_evo_state *state);

/* EVO_CALLS for an unknown name. */
ligi_evo_call ligi_evo_call_named(const char *name);
/* Copies the timestamps of the functions from `first` to before `end` to state->taken: the servers'
 * if all stores are served, otherwise this process's. */
lig_status ligi_evo_stamps_take(ligi_evo_state *state, ligi_evo_call first, ligi_evo_call end);
lig_status ligi_evo_stamps_clear(ligi_evo_state *state, ligi_evo_call first, ligi_evo_call end);

/* Ends the servers of served stores; opens the stores first if all are served. A server that cannot
 * be reached counts as ended. */
lig_status ligi_evo_served_stop(ligi_evo_state *state);

#endif
