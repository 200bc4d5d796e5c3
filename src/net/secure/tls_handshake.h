/* Authentication: the keys of a group, and OpenSSL's part of the handshake, which starts here.
 * tls_channel.c moves the bytes. */
#ifndef LIGI_TLS_HANDSHAKE_H
#define LIGI_TLS_HANDSHAKE_H

#include "net/secure/tls_channel.h"
#include "net/secure/tls_record.h"

const ligi_openssl *ligi_tls_keys_openssl(const ligi_tls_keys *keys);

int ligi_tls_keys_has(const ligi_tls_keys *keys, unsigned which);
/* Adds a second key, for another group, or replaces one (`which` is 0 or 1): from now on a
 * connecting peer may prove any of them. A NULL group removes the key. */
lig_status ligi_tls_keys_set(ligi_tls_keys *keys, unsigned which, const struct iovec *secret,
                             const char *group);
/* LIG_E_DENIED: a connection needs the key of a group before there is one. */
lig_status ligi_tls_fail_early(void);

/* A handshake in progress; embedded, and must not move. */
typedef struct ligi_tls_handshake {
    ligi_tls_keys *keys;
    unsigned which; /* index of the key: chosen by the connecting end, found by the accepting end */
    SSL *ssl;
    BIO *inner, *wire; /* two ends of a pair of rings: OpenSSL's, and the network's */
    uint8_t secrets[2][LIGI_TLS_SECRET]; /* of the client's and of the server's records */
    unsigned known;                      /* bit i: secrets[i] is known */
} ligi_tls_handshake;

lig_status ligi_tls_handshake_init(ligi_tls_handshake *handshake, ligi_tls_keys *keys,
                                   ligi_tls_channel_end end);
/* One step with the contents of the rings. *done is 1 when both ends have proved the secret and
 * both traffic secrets are known; LIG_E_DENIED with an error text about `peer` otherwise. In both
 * cases something may have been written to the network. */
lig_status ligi_tls_handshake_step(ligi_tls_handshake *handshake, const char *peer, int *done);
/* Wipes and frees; zero-initialised is valid. */
void ligi_tls_handshake_fini(ligi_tls_handshake *handshake);

/* LIG_E_UNSUPPORTED without OpenSSL 3, LIG_E_INVALID for a secret below LIG_SECRET_LEAST bytes.
 * Keeps neither secret nor group. */
lig_status ligi_tls_keys_open(const void *secret, size_t bytes, const char *group,
                              ligi_tls_keys **keys);
/* Wipes the keys. Connections made with them must be closed before. NULL is valid. */
void ligi_tls_keys_close(ligi_tls_keys *keys);

/* The library that encrypts, by its name (ligi_gcm_choose, with its errors); owned by the keys. One
 * thread at a time. */
lig_status ligi_tls_keys_gcm(ligi_tls_keys *keys, const char *name, const struct ligi_gcm **gcm);

/* HMAC-SHA256 of `words` with a separate key derived from secret and group: for transports that
 * cannot encrypt. */
lig_status ligi_tls_prove(const struct iovec *secret, const char *group, const struct iovec *words,
                          uint8_t proof[LIGI_SECURE_PROOF]);

#endif
