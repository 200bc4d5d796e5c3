/* The receiving side of a link: order and limits, hello and goodbye, and the module's hooks. */
#ifndef LIGI_LINK_RECEIVE_H
#define LIGI_LINK_RECEIVE_H

#include "net/transport.h"

/* Discards the rest of the payload being received under `token`; its memory is no longer accessed,
 * and `arrived` is still called (or `lost`: UCX cannot redirect a receive, and the link ends unless
 * the rest arrives soon). LIG_E_NOTFOUND if no such payload is being received. */
lig_status ligi_net_divert(ligi_link *link, void *token);

/* A message begins. Checks kind, order and limits, before anything is allocated or read for it. */
lig_status ligi_link_begin(ligi_link *link, const ligi_frame_prefix *prefix);
/* Its head is complete. Calls the module (or handles hello and goodbye) and fills in->iov, count,
 * bytes. On failure: ligi_link_fail, as for every failing call on a link. After any call of the
 * core a link may be closing: see ligi_link_dead. */
lig_status ligi_link_take(ligi_link *link, ligi_incoming *in);
/* All in->bytes are in place. */
void ligi_link_landed(ligi_link *link);

#endif
