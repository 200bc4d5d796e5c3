/* The hooks of the endpoint: clients connect, send requests and disconnect. */
#ifndef LIGI_SERVER_RECEIVE_H
#define LIGI_SERVER_RECEIVE_H

#include "store/serve/server/server_state.h"

extern const ligi_net_hooks ligi_served_hooks; /* their context is the lig_server */

#endif
