/* TLS 1.3 with a pre-shared key over a connected non-blocking socket; OpenSSL does all of it. Both
 * ends have one secret and prove it in the handshake (psk_dhe_ke: a fresh Diffie-Hellman exchange
 * each time, so that a secret that leaks later does not decrypt earlier traffic). No certificates,
 * no tickets, no early data, no older version. The key is derived from secret and group, so that
 * members of different groups cannot connect even if they share a secret. docs/security.md says
 * what this protects against. Nothing here blocks: "not yet" is LIG_OK with zero bytes. The caller
 * enforces the handshake's deadline. A handle belongs to one thread at a time; keys are shared
 * except for one call. */
#ifndef LIGI_TLS_CHANNEL_H
#define LIGI_TLS_CHANNEL_H

#include <sys/uio.h>

#include <ligament/base.h>

typedef struct ligi_tls_keys
    ligi_tls_keys; /* the keys of a process for all its connections of a group */
typedef struct ligi_tls_channel ligi_tls_channel; /* one connection */

#define LIGI_SECURE_PROOF 32

typedef enum ligi_tls_channel_end { LIGI_SECURE_CONNECT, LIGI_SECURE_ACCEPT } ligi_tls_channel_end;

/* Borrows `keys` and `fd` until close; `peer` (copied, truncated to 127 bytes) names the other end
 * in error texts. An accepting connection uses a few hundred bytes until the peer has sent
 * something, and allocates buffers only when there is data. */
lig_status ligi_tls_channel_open(ligi_tls_keys *keys, int fd, ligi_tls_channel_end end,
                                 const char *peer, ligi_tls_channel **secure);

/* For the connecting end, before the handshake: the key it proves (default 0). LIG_E_DENIED if
 * there is none. */
lig_status ligi_tls_channel_use(ligi_tls_channel *secure, unsigned which);
/* The key that both have proved, once the handshake is done. */
unsigned ligi_tls_channel_used(const ligi_tls_channel *secure);
/* At the accepting end: the tag of the peer's own secret, 0 if it proved one of the group's. */
uint64_t ligi_tls_channel_tag(const ligi_tls_channel *secure);

/* Starts or continues the handshake as far as the socket allows; *done is 1 when both ends have
 * proved the secret. Before that nothing can be received or sent. LIG_E_DENIED: wrong secret or
 * group, or no TLS 1.3; LIG_E_PEER: connection lost. */
lig_status ligi_tls_channel_handshake(ligi_tls_channel *secure, int *done);

/* Fills the pieces in order, as far as bytes are available; *got may be 0. LIG_E_PEER at the end of
 * the stream. A failure is permanent: every later recv, send and flush returns it again. (After a
 * failure of sending, recv can still read data that has arrived.) */
lig_status ligi_tls_channel_recv(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *got);

/* Accepts bytes of the pieces in order, as far as the socket accepts them; accepted bytes are no
 * longer borrowed. *taken may be 0. At most one record waits for the socket, and messages of TLS
 * itself (a key change): they are sent by ligi_tls_channel_flush or the next send. */
lig_status ligi_tls_channel_send(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *taken);
lig_status ligi_tls_channel_flush(ligi_tls_channel *secure);

/* 1 while encrypted bytes wait for the socket: ask for EPOLLOUT and call flush (or shake, or send).
 * Receiving can also set it to 1: a key change is sent with the next call. */
int ligi_tls_channel_unsent(const ligi_tls_channel *secure);

/* Sends close_notify if the socket accepts it immediately, wipes the keys of the connection and
 * frees. Leaves the socket open. NULL is valid. */
void ligi_tls_channel_close(ligi_tls_channel *secure);
/* Like close, without sending: for a forked child, since keys and counters belong to its parent. */
void ligi_tls_channel_forget(ligi_tls_channel *secure);

/* The records sent with one key before it is changed; below the limit of AES-GCM (2^24.5). For
 * tests. */
void ligi_tls_channel_rekey_after(ligi_tls_channel *secure, uint64_t records);

#endif
