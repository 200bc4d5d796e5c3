/* How a connection is made: one address after the other, with timeouts and retries. */
#ifndef LIGI_LINK_CONNECT_H
#define LIGI_LINK_CONNECT_H

#include "net/transport.h"

/* Returns a link at once; `met` reports that it is up, `lost` that it failed. Messages may be sent
 * at once: they are queued. A host name is resolved here, which may block; numeric addresses never
 * do. */
lig_status ligi_net_connect(ligi_net *net, const ligi_connect *connect, ligi_link **link);

/* The next address of the plan: LIG_OK if an attempt is running or scheduled. */
lig_status ligi_link_connect_next(ligi_link *link);

#endif
