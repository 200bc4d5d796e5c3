/* WATCH: requests that wait for a commit are put aside, so that they occupy no worker. */
#ifndef LIGI_SERVER_WATCH_H
#define LIGI_SERVER_WATCH_H

#include "store/serve/server/server_state.h"

lig_status ligi_served_watch_run(ligi_served_call *call);

lig_status ligi_served_watches_start(lig_server *server);
/* Answers the waiting requests. */
void ligi_served_watches_stop(lig_server *server);

#endif
