/* Locks by name. For the store, the server is one process: which of its clients holds a lock is
 * decided here. */
#ifndef LIGI_SERVER_LOCKS_H
#define LIGI_SERVER_LOCKS_H

#include "store/serve/server/server_state.h"

/* LOCK. A process that already holds the name acquires it again. */
lig_status ligi_served_lock_run(ligi_served_call *call);

#endif
