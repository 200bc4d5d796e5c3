/* Who may speak: the keys of a group and OpenSSL's part of the handshake. tls_channel.c moves the
 * bytes. */
#ifndef LIGI_TLS_HANDSHAKE_H
#define LIGI_TLS_HANDSHAKE_H

#include "net/secure/tls_channel.h"
#include "net/secure/tls_record.h"

const ligi_openssl *ligi_secure_keys_openssl(const ligi_secure_keys *keys);

int ligi_secure_keys_has(const ligi_secure_keys *keys, unsigned which);

/* A handshake under way; embedded, and does not move while it is. */
typedef struct ligi_shaking {
    ligi_secure_keys *keys;
    unsigned which; /* of the keys: the connecting end's choice, the accepting end's find */
    SSL *ssl;
    BIO *inner, *wire; /* two ends of a pair of rings: OpenSSL's, and the one with what travels */
    uint8_t secrets[2][LIGI_TLS_SECRET]; /* of the client's and of the server's records */
    unsigned known;                      /* bit i: secrets[i] is there */
} ligi_shaking;

lig_status ligi_shaking_init(ligi_shaking *shaking, ligi_secure_keys *keys, ligi_secure_end end);
/* One step with what is in the rings. *done is 1 when both have proved the secret and both secrets
 * are known; failing, LIG_E_DENIED with a sentence about `peer`. Either way something may have been
 * written to the wire. */
lig_status ligi_shaking_step(ligi_shaking *shaking, const char *peer, int *done);
/* Wipes and frees; zero-initialised is fine. */
void ligi_shaking_fini(ligi_shaking *shaking);

#endif
