/* From the ring to where the core says. */
#ifndef LIGI_SHM_RECEIVE_H
#define LIGI_SHM_RECEIVE_H

#include "net/shm/wire.h"

/* Takes what has come, a portion at most. Returns how many things happened. */
int ligi_shm_receive(ligi_wire *wire);
/* The bytes that the step the wire is in waits for. */
size_t ligi_shm_awaits(const ligi_wire *wire);
void ligi_shm_divert(void *wire);

#endif
