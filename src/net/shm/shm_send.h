/* Moves messages from a link's queue into the ring. */
#ifndef LIGI_SHM_SEND_H
#define LIGI_SHM_SEND_H

#include "net/shm/wire.h"

void ligi_shm_send(void *wire);

#endif
