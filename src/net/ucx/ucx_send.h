/* Sending over UCX. */
#ifndef LIGI_UCX_SEND_H
#define LIGI_UCX_SEND_H

#include "net/ucx/ucx.h"

void ligi_ucx_wire_send(void *context);
/* Reports messages at the front of the queue that have been sent to the core. */
void ligi_ucx_wire_settle(ligi_ucx_wire *wire);
/* A small message outside the queue. */
lig_status ligi_ucx_wire_say(ligi_ucx_wire *wire, ligi_ucx_message id, const void *data,
                             size_t bytes);
void ligi_ucx_ops_free(ligi_ucx_self *self);

#endif
