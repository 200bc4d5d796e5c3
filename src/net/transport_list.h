/* The transports of this build: those of builtin.def, then those in shared objects. */
#ifndef LIGI_TRANSPORT_LIST_H
#define LIGI_TRANSPORT_LIST_H

#include "net/transport.h"

/* Whether the scheme is listed. Loads nothing. */
int ligi_transport_known(const char *scheme);
/* "inproc, shm, tcp, ucx", for messages. */
void ligi_transport_names(char *text, size_t bytes);
/* The table of a scheme; loads its shared object if it has one. LIG_E_NOTFOUND for an unknown
 * scheme, with the known ones; otherwise as ligi_transport_load. */
lig_status ligi_transport_find(const char *scheme, const ligi_transport_ops **ops);

#endif
