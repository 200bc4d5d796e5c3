/* Moves messages from the ring to the destinations given by the core. */
#ifndef LIGI_SHM_RECEIVE_H
#define LIGI_SHM_RECEIVE_H

#include "net/shm/wire.h"

/* Receives available messages, at most one portion. Returns the number of events. */
int ligi_shm_receive(ligi_wire *wire);
/* The number of bytes that the wire's current step waits for. */
size_t ligi_shm_awaits(const ligi_wire *wire);
void ligi_shm_divert(void *wire);

#endif
