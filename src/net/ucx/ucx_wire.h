/* A connection over UCX: create, fail, drop. */
#ifndef LIGI_UCX_WIRE_H
#define LIGI_UCX_WIRE_H

#include "net/ucx/ucx.h"

lig_status ligi_ucx_wire_create(ligi_ucx_self *self, ucp_ep_params_t *params, int accepted,
                                ligi_ucx_wire **wire);
ligi_ucx_wire *ligi_ucx_wire_of(const ligi_ucx_self *self, ucp_ep_h ep);
/* Ends the link with this thread's error text. */
void ligi_ucx_wire_fail(ligi_ucx_wire *wire, lig_status status);
void ligi_ucx_wire_drop(void *context, int graceful);
/* Closes the connection now, so that UCX releases memory. The link, if it still exists, remains
 * to be dropped. */
void ligi_ucx_wire_cut(ligi_ucx_wire *wire);
/* Continues closing; frees wires that have ended. Returns the number of the remaining ones. */
size_t ligi_ucx_wires_reap(ligi_ucx_self *self, int64_t now_ns);
/* Stops waiting for peers that were sent a goodbye. */
void ligi_ucx_wires_force(ligi_ucx_self *self);

#endif
