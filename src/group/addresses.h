/* Where members of a group listen, and how one reaches another: what all modules do alike whose
 * members talk to each other. */
#ifndef LIGI_ADDRESSES_H
#define LIGI_ADDRESSES_H

#include "group/group.h"

/* "host:port" becomes "tcp://host:port"; a URI stays as it is. */
lig_status ligi_group_uri(const char *given, char uri[LIGI_GROUP_URI_BYTES]);
/* UNSUPPORTED, naming those there are; "auto" is one. */
lig_status ligi_group_check_transport(const char *transport);
/* For the endpoint's options: what the user has said of the fabric. Who names UCX trusts it. */
ligi_fabric ligi_group_fabric(const char *transport, int trusted, int any_device);
/* Begins to accept on `transport`, or with "auto" on all that work here; on UCX, which does not
 * encrypt, only beyond this host and where the endpoint trusts the fabric. Beyond this host only
 * with a secret, and when the address of the rendezvous (NULL: none) lies there. */
lig_status ligi_group_listen(ligi_net *net, const char *transport, const char *address, int secret);
/* ligi_net_connect to the server of that rank by the card that is its blob, which need not be in
 * `how`; *incarnation is that of the one who sits there now. */
lig_status ligi_group_connect(ligi_group *group, ligi_net *net, uint32_t rank,
                              const ligi_connect *how, uint32_t *incarnation, ligi_link **link);

#endif
