/* The thread that drives progress while no caller does. Waking it whenever a caller leaves would
 * cost each wait a wake-up, so it polls: often at first, less so while callers keep coming, and not
 * at all while one of them sleeps and will wake it when leaving. */
#ifndef LIGI_PROGRESS_THREAD_H
#define LIGI_PROGRESS_THREAD_H

#include "net/transport.h"

lig_status ligi_progress_thread_start(ligi_net *net);
void ligi_progress_thread_stop(ligi_net *net);

#endif
