/* TLS 1.3 with a pre-shared key over a connected socket that does not block.
 *
 * Both ends hold one secret and prove it in the handshake (psk_dhe_ke: a fresh Diffie-Hellman
 * exchange each time, so that a secret that leaks later opens nothing recorded before). No
 * certificates, no tickets, no early data, no older version. The key is derived from secret and
 * group, so that a member of one group is a stranger to every other even when both share a secret.
 * docs/security.md says what this protects against.
 *
 * Nothing here blocks or waits: "not yet" is LIG_OK with zero bytes. The deadline of a handshake is
 * its caller's. A handle belongs to one thread at a time; keys are shared but for one call. */
#ifndef LIGI_TLS_CHANNEL_H
#define LIGI_TLS_CHANNEL_H

#include <sys/uio.h>

#include <ligament/base.h>

typedef struct ligi_tls_keys
    ligi_tls_keys; /* what a process needs for all its connections of a group */
typedef struct ligi_tls_channel ligi_tls_channel; /* one connection */
struct ligi_gcm;                                  /* what encrypts: net/gcm.h */

#define LIGI_SECURE_PROOF 32

typedef enum ligi_tls_channel_end { LIGI_SECURE_CONNECT, LIGI_SECURE_ACCEPT } ligi_tls_channel_end;

/* Borrows `keys`, `gcm` and `fd` until close; `peer` (copied, cut at 127 bytes) names the other end
 * in sentences. An accepting connection takes some hundred bytes until the peer has said something,
 * and its buffers only when there is data. */
lig_status ligi_tls_channel_open(ligi_tls_keys *keys, const struct ligi_gcm *gcm, int fd,
                                 ligi_tls_channel_end end, const char *peer,
                                 ligi_tls_channel **secure);

/* For the connecting end, before the handshake: the key it proves (0 unless said). LIG_E_DENIED
 * when there is none. */
lig_status ligi_tls_channel_use(ligi_tls_channel *secure, unsigned which);
/* The key that both have proved, once the handshake is done. */
unsigned ligi_tls_channel_used(const ligi_tls_channel *secure);

/* Goes on with the handshake as far as the socket allows; *done is 1 when both ends have proved the
 * secret. Before that nothing can be received or sent. LIG_E_DENIED: wrong secret or group, or no
 * TLS 1.3; LIG_E_PEER: gone. */
lig_status ligi_tls_channel_handshake(ligi_tls_channel *secure, int *done);

/* Fills the pieces in order, as far as bytes are there; *got may be 0. LIG_E_PEER at the end of the
 * stream. */
lig_status ligi_tls_channel_recv(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *got);

/* Takes bytes of the pieces in order, as far as there is room; what is taken is encrypted and no
 * longer borrowed. *taken may be 0. Sends what it can at once; the rest goes with
 * ligi_tls_channel_flush or the next send. */
lig_status ligi_tls_channel_send(ligi_tls_channel *secure, const struct iovec *pieces, size_t count,
                                 size_t *taken);
lig_status ligi_tls_channel_flush(ligi_tls_channel *secure);

/* 1 while encrypted bytes wait for the socket: ask for EPOLLOUT and call flush (or shake, or send).
 */
int ligi_tls_channel_unsent(const ligi_tls_channel *secure);

/* Says goodbye if the socket takes it at once, wipes the keys of the connection and frees. Leaves
 * the socket open. NULL is fine. */
void ligi_tls_channel_close(ligi_tls_channel *secure);
/* As close, without a word: what a forked child does, since keys and counters are its parent's. */
void ligi_tls_channel_forget(ligi_tls_channel *secure);

/* The bytes sent with one key before it is changed; far below what AES-GCM allows (2^24.5 records).
 * For tests. */
void ligi_tls_channel_rekey_after(ligi_tls_channel *secure, uint64_t bytes);

#endif
