/* Loads libucp when it is first needed. */
#ifndef LIGI_UCX_LOAD_H
#define LIGI_UCX_LOAD_H

#include "net/ucx/ucx_calls.h"

/* LIG_E_UNSUPPORTED with an error text if UCX is not installed. The library stays loaded. */
lig_status ligi_ucx_load(const ligi_host *host, ligi_ucx_calls *calls);

#endif
