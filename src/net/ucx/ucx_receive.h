/* Receiving over UCX. */
#ifndef LIGI_UCX_RECEIVE_H
#define LIGI_UCX_RECEIVE_H

#include "net/ucx/ucx.h"

/* Processes waiting messages. Returns the number of events. */
int ligi_ucx_wire_look(ligi_ucx_wire *wire);
void ligi_ucx_wire_divert(void *context);
void ligi_ucx_arrivals_free(ligi_ucx_wire *wire);

#endif
