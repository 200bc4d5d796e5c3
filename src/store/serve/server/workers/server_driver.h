/* The thread that receives. It also runs requests that are short as a rule: waking another thread
 * takes longer than they do. While one of them takes unexpectedly long (a cold disk, another
 * process that holds a lock), a second thread receives in its place, so that only the client of the
 * slow request waits. */
#ifndef LIGI_SERVER_DRIVER_H
#define LIGI_SERVER_DRIVER_H

#include "store/serve/server/server_state.h"

lig_status ligi_served_driver_start(lig_server *server);
/* Runs the requests that it has taken, then ends both threads. Does nothing if it was not
 * started. */
void ligi_served_driver_stop(lig_server *server);

/* For the hook, with the endpoint's lock: 1 if the driver has taken the request, 0 if it belongs
 * into the queue. */
int ligi_served_driver_take(lig_server *server, ligi_served_job *job);

#endif
