/* How many models a server keeps, and for how long what was retired: --keep, --quota, --undelete.
 */
#ifndef LIGI_SERVER_RETENTION_H
#define LIGI_SERVER_RETENTION_H

#include "store/serve/server/server_state.h"

/* Takes the rules of the options over, for the server's handle and those made from it. */
lig_status ligi_served_retention_open(lig_server *server, const lig_server_options *options);
void ligi_served_retention_close(lig_server *server);

/* After a save: retires the oldest models above the number that a rule of its name keeps. A failure
 * is logged: the next save tries again. */
void ligi_served_keep_newest(lig_server *server, const char *saved);
/* Called by the tick, with the endpoint's lock: lets a worker remove what was retired long enough
 * ago, every minute. */
void ligi_served_purge_tick(lig_server *server, int64_t now_ns);

#endif
