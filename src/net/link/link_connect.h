/* How a connection is made: which addresses are tried, in which order, how often. */
#ifndef LIGI_LINK_CONNECT_H
#define LIGI_LINK_CONNECT_H

#include "net/transport.h"

/* Returns a link at once; `met` says that it is up, `lost` that it is not to be. May be sent on at
 * once: messages wait. A host's name is resolved here, which can take as long as the resolver does;
 * numbers never wait. */
lig_status ligi_net_connect(ligi_net *net, const ligi_connect *connect, ligi_link **link);

/* The next address of the plan: LIG_OK when an attempt is under way or will be. */
lig_status ligi_link_connect_next(ligi_link *link);

#endif
