/* Where a member of a group listens for its peers: on which transports, at which addresses. */
#ifndef LIGI_LISTEN_ADDRESSES_H
#define LIGI_LISTEN_ADDRESSES_H

#include "group/group.h"

/* "host:port" becomes "tcp://host:port"; a URI is unchanged. */
lig_status ligi_group_uri(const char *given, char uri[LIGI_GROUP_URI_BYTES]);
/* UNSUPPORTED for an unknown transport, listing the known ones; "auto" is valid. */
lig_status ligi_group_check_transport(const char *transport);
/* For the endpoint's options: whether the user trusts the fabric. Naming a transport that does not
 * encrypt implies it. */
ligi_fabric ligi_group_fabric(const char *transport, int trusted, int any_device);
/* Whether members on one host can map each other's memory through this transport. */
int ligi_group_shares_memory(const char *transport);
/* Starts listening on `transport`, or with "auto" on all that work here; on those that do not
 * encrypt only for other hosts and if the endpoint trusts the fabric. For other hosts only with a
 * secret, and if the address of the rendezvous (NULL: none) is not local. */
lig_status ligi_group_listen(ligi_net *net, const char *transport, const char *address, int secret);

#endif
