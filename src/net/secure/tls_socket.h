/* A connected non-blocking socket as OpenSSL sees it (a BIO). OpenSSL's own would raise SIGPIPE in
 * a program that writes to a peer which has gone. */
#ifndef LIGI_TLS_SOCKET_H
#define LIGI_TLS_SOCKET_H

#include "net/secure/openssl_library.h"

typedef struct ligi_tls_socket {
    int fd;           /* borrowed */
    int ended;        /* the peer has closed its side */
    int error;        /* errno of the first failure, or 0 */
    uint64_t written; /* bytes */
} ligi_tls_socket;

/* One for any number of connections; NULL without memory. */
BIO_METHOD *ligi_tls_socket_method(const ligi_openssl *openssl);
/* Borrows `socket`; NULL without memory. Freed with the connection it is given to. */
BIO *ligi_tls_socket_bio(const ligi_openssl *openssl, const BIO_METHOD *method,
                         ligi_tls_socket *socket);

#endif
