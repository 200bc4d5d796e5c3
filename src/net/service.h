/* Which module owns which links, and memory that can be lent. */
#ifndef LIGI_SERVICE_H
#define LIGI_SERVICE_H

#include "net/transport.h"

/* From now on links of `service` belong to these hooks (borrowed until close). LIG_E_EXISTS when
 * they have an owner. */
lig_status ligi_net_serve(ligi_net *net, ligi_service service, const ligi_net_hooks *hooks,
                          void *context);
/* Ends it: its links are closed, no hook is called any more (`sent` is, before it returns). */
void ligi_net_unserve(ligi_net *net, ligi_service service);
/* Has the service's tick called soon: its deadlines have changed. Any thread, no lock needed, never
 * waits. */
void ligi_net_hurry(ligi_net *net, ligi_service service);

/* Memory that a peer on this host can be shown (LIGI_SEND_LEND); zeroed, aligned to 64 bytes. Plain
 * memory where no transport can share. Freed by ligi_net_free, before or after close of the
 * endpoint (`net` is NULL then). */
lig_status ligi_net_alloc(ligi_net *net, uint64_t bytes, void **memory);
/* Likewise, aligned to a page, for a lot of memory of which hardly any is ever touched, and that
 * peers may read and never write: it counts towards no limit. LIG_E_UNSUPPORTED where nothing can
 * share.
 */
lig_status ligi_net_reserve(ligi_net *net, uint64_t bytes, void **memory);
void ligi_net_free(ligi_net *net, void *memory);

#endif
