/* Which module owns which links, and memory that can be lent. */
#ifndef LIGI_SERVICE_H
#define LIGI_SERVICE_H

#include "net/transport.h"

/* From now on links of `service` belong to these hooks (borrowed until close). LIG_E_EXISTS if the
 * service already has an owner. */
lig_status ligi_net_serve(ligi_net *net, ligi_service service, const ligi_net_hooks *hooks,
                          void *context);
/* Ends the service: its links are closed, and no hook is called any more (except `sent`, before it
 * returns). */
void ligi_net_unserve(ligi_net *net, ligi_service service);
/* Makes the service's tick run soon: its deadlines have changed. Any thread, no lock needed, never
 * blocks. */
void ligi_net_hurry(ligi_net *net, ligi_service service);

/* Memory that can be lent to a peer on this host (LIGI_SEND_LEND); zeroed, aligned to 64 bytes.
 * Plain memory if no transport can share. Freed by ligi_net_free, before or after close of the
 * endpoint (`net` is NULL then). */
lig_status ligi_net_alloc(ligi_net *net, uint64_t bytes, void **memory);
/* The same, page-aligned, for large and mostly untouched memory that peers may read and never
 * write: it counts towards no limit. LIG_E_UNSUPPORTED if no transport can share. */
lig_status ligi_net_reserve(ligi_net *net, uint64_t bytes, void **memory);
void ligi_net_free(ligi_net *net, void *memory);

#endif
