/* A connected non-blocking socket as OpenSSL sees it (a BIO). OpenSSL's own would raise SIGPIPE in
 * a program that writes to a closed connection. OpenSSL also reads nothing while a message of its
 * own (a key change, an alert) waits for room in the socket, so that two peers with full sockets
 * would wait for each other: a full socket therefore spills short writes into a buffer. */
#ifndef LIGI_TLS_SOCKET_H
#define LIGI_TLS_SOCKET_H

#include "net/secure/openssl_library.h"

#define LIGI_TLS_SPILL_BYTES 256

typedef struct ligi_tls_socket {
    int fd;             /* borrowed */
    int ended;          /* the peer has closed its side */
    int error;          /* errno of the first failure, or 0 */
    uint64_t written;   /* bytes, spilled ones included */
    size_t spill_bytes; /* written, but not yet sent: they are sent before anything else */
    uint8_t spill[LIGI_TLS_SPILL_BYTES];
} ligi_tls_socket;

/* Sends spilled bytes, as far as the socket accepts them. A failure is in `error`. */
void ligi_tls_socket_flush(ligi_tls_socket *socket);

/* One for any number of connections; NULL without memory. */
BIO_METHOD *ligi_tls_socket_method(const ligi_openssl *openssl);
/* Borrows `socket`; NULL without memory. Freed with the connection it is given to. */
BIO *ligi_tls_socket_bio(const ligi_openssl *openssl, const BIO_METHOD *method,
                         ligi_tls_socket *socket);

#endif
