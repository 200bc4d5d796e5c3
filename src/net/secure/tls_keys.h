/* The keys of a group, and the OpenSSL configuration that authenticates with them: TLS 1.3 with a
 * pre-shared key only. tls_channel.c moves the bytes. */
#ifndef LIGI_TLS_KEYS_H
#define LIGI_TLS_KEYS_H

#include "net/net.h"
#include "net/secure/tls_channel.h"
#include "net/secure/tls_socket.h"

#include <sys/uio.h>

/* LIG_E_UNSUPPORTED without OpenSSL 3, LIG_E_INVALID for a secret below LIG_SECRET_LEAST bytes.
 * Keeps neither secret nor group. */
lig_status ligi_tls_keys_open(const void *secret, size_t bytes, const char *group,
                              ligi_tls_keys **keys);
/* Wipes the keys. Connections made with them must be closed before. NULL is valid. */
void ligi_tls_keys_close(ligi_tls_keys *keys);

int ligi_tls_keys_has(const ligi_tls_keys *keys, unsigned which);
/* Adds a second key, for another group, or replaces one (`which` is 0 or 1): from now on a
 * connecting peer may prove any of them. A NULL group removes the key. */
lig_status ligi_tls_keys_set(ligi_tls_keys *keys, unsigned which, const struct iovec *secret,
                             const char *group);
/* Separate secrets of peers: from now on a connecting peer may also prove one of these, for the
 * same group. Replaces the previous ones; existing connections are unaffected. */
lig_status ligi_tls_keys_set_peers(ligi_tls_keys *keys, const ligi_net_peer_secret *secrets,
                                   size_t count, const char *group);
/* LIG_E_DENIED: a connection needs the key of a group before there is one. */
lig_status ligi_tls_fail_early(void);

/* One end of a handshake. Must not move while the connection exists. */
typedef struct ligi_tls_party {
    ligi_tls_keys *keys;
    unsigned which; /* index of the key: chosen by the connecting end, found by the accepting end */
    uint64_t tag;   /* accepting end: of the peer's own secret; 0: it proved one of the group's */
} ligi_tls_party;

/* An OpenSSL connection that authenticates with one of the party's keys and by no other means.
 * Borrows party and socket; freed by SSL_free. */
lig_status ligi_tls_keys_connection(ligi_tls_party *party, ligi_tls_socket *socket,
                                    ligi_tls_channel_end end, SSL **ssl);

/* HMAC-SHA256 of `words` with a separate key derived from secret and group: for transports that
 * cannot encrypt. */
lig_status ligi_tls_prove(const struct iovec *secret, const char *group, const struct iovec *words,
                          uint8_t proof[LIGI_SECURE_PROOF]);

#endif
