/* Listening and connecting between processes of one host: Unix sockets and access control. */
#ifndef LIGI_SHM_LISTEN_H
#define LIGI_SHM_LISTEN_H

#include "net/shm/wire.h"

lig_status ligi_shm_listen(void *self, const ligi_uri *uri, char address[LIGI_ADDRESS_BYTES_MAX]);
lig_status ligi_shm_connect(void *self, const ligi_uri *uri, ligi_link *link, void **wire);
void ligi_shm_unlisten(ligi_shm *shm, int forked);

#endif
