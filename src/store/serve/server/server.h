/* The server as a whole: shutdown. */
#ifndef LIGI_SERVER_H
#define LIGI_SERVER_H

#include "store/serve/server/server_state.h"

/* lig_server_wait returns. */
void ligi_served_ask_stop(lig_server *server);

#endif
