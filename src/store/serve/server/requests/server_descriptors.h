/* Descriptors of packs for clients on this host: they read and map the files themselves. */
#ifndef LIGI_SERVER_DESCRIPTORS_H
#define LIGI_SERVER_DESCRIPTORS_H

#include "store/serve/server/server_state.h"

/* Listens on an abstract Unix socket, when the store has files. */
lig_status ligi_served_descriptors_open(lig_server *server);
void ligi_served_descriptors_close(lig_server *server);
/* 1 when the client of the session can get them. */
int ligi_served_descriptors_work(const ligi_served_session *session);
/* With the endpoint's lock: drops tokens and connections that were not used in time. */
void ligi_served_descriptors_tick(lig_server *server, int64_t now_ns);
/* DESCRIPTOR */
lig_status ligi_served_descriptor_run(ligi_served_call *call);

#endif
