/* How a member of a group connects to another, whatever the module that they belong to. */
#ifndef LIGI_PEER_CONNECT_H
#define LIGI_PEER_CONNECT_H

#include "group/group.h"

/* ligi_net_connect to the server of that rank, using its blob as address card, which need not be in
 * `how`; *incarnation is that of the current holder of the seat. */
lig_status ligi_group_connect(ligi_group *group, ligi_net *net, uint32_t rank,
                              const ligi_connect *how, uint32_t *incarnation, ligi_link **link);

#endif
