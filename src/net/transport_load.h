/* Transports that need another library are shared objects, so that this library has no such
 * dependency. */
#ifndef LIGI_TRANSPORT_LOAD_H
#define LIGI_TRANSPORT_LOAD_H

#include "net/transport.h"

/* The table of a transport in a shared object (libligament_<scheme>.so, next to the library or on
 * the loader's path). LIG_E_NOTFOUND for an unknown scheme, LIG_E_UNSUPPORTED with an error text if
 * it is not installed or does not match. */
lig_status ligi_transport_load(const char *scheme, const ligi_transport_ops **ops);
/* A proof of `words` that only holders of the secret and of `key` can make (HMAC-SHA256). For
 * transports that cannot encrypt. LIG_E_UNSUPPORTED without OpenSSL, LIG_E_DENIED if there is no
 * such key. */
lig_status ligi_net_prove(const ligi_net *net, ligi_net_key key, const struct iovec *words,
                          uint8_t proof[LIGI_PROOF_BYTES]);

#endif
