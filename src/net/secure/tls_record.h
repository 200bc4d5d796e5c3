/* TLS 1.3 records (RFC 8446, section 5) with TLS_AES_128_GCM_SHA256: what follows a handshake that
 * OpenSSL has made.
 *
 * OpenSSL's own record layer copies each byte twice on either side; here a record is encrypted from
 * the sender's memory into the buffer that goes to the socket, and decrypted from the socket's
 * buffer into the receiver's memory. The tests hold it against OpenSSL's. No sockets here. */
#ifndef LIGI_TLS_RECORD_H
#define LIGI_TLS_RECORD_H

#include "net/secure/aes_gcm.h"

#define LIGI_TLS_DATA_MAX ((size_t)16384)
#define LIGI_TLS_HEADER ((size_t)5)
#define LIGI_TLS_MORE ((size_t)(5 + 1 + 16)) /* header, the type inside, tag */
#define LIGI_TLS_MAX (LIGI_TLS_HEADER + LIGI_TLS_DATA_MAX + 256)
#define LIGI_TLS_SECRET 32

typedef enum ligi_tls_type {
    LIGI_TLS_ALERT = 21,
    LIGI_TLS_HANDSHAKE = 22,
    LIGI_TLS_DATA = 23
} ligi_tls_type;

/* One direction of one connection; embedded. */
typedef struct ligi_tls_key {
    const ligi_gcm *gcm; /* borrowed */
    void *cipher;        /* the engine's */
    int seals;
    uint64_t sequence; /* of the next record */
    uint8_t iv[LIGI_GCM_NONCE];
    uint8_t secret[LIGI_TLS_SECRET]; /* the traffic secret, from which the next key follows */
} ligi_tls_key;

/* `secret` is a traffic secret of the handshake. `key` is zero-initialised; it seals, or it opens.
 */
lig_status ligi_tls_key_init(const ligi_gcm *gcm, ligi_tls_key *key,
                             const uint8_t secret[LIGI_TLS_SECRET], int seals);
/* The next key, after a KeyUpdate. */
lig_status ligi_tls_key_next(ligi_tls_key *key);
/* Wipes; zero-initialised is valid. */
void ligi_tls_key_fini(ligi_tls_key *key);

/* Encrypts a record of at most LIGI_TLS_DATA_MAX bytes; `record` has room for bytes +
 * LIGI_TLS_MORE. */
lig_status ligi_tls_seal(ligi_tls_key *key, ligi_tls_type type, const void *data, size_t bytes,
                         uint8_t *record);

/* The total length of the record that begins here, from its first LIGI_TLS_HEADER bytes;
 * LIG_E_CORRUPT if it is invalid. */
lig_status ligi_tls_length(const uint8_t header[LIGI_TLS_HEADER], size_t *bytes);
/* The data in a record of that length: what `open` writes. */
size_t ligi_tls_data_bytes(size_t record_bytes);

/* Decrypts into `data`. After LIG_E_CORRUPT the record is not authentic, and the contents of `data`
 * are undefined. */
lig_status ligi_tls_open(ligi_tls_key *key, const uint8_t *record, size_t record_bytes, void *data,
                         int *type);

#endif
