/* That both ends hold the endpoint's secret: three messages before the first hello. UCX encrypts
 * nothing, so this keeps strangers out and does not keep anybody from listening (docs/security.md).
 *
 *   client -> server  1, which key, nonce of the client
 *   server -> client  2, nonce of the server, proof("server", both nonces)
 *   client -> server  3, proof("client", both nonces) */
#ifndef LIGI_UCX_PROOF_H
#define LIGI_UCX_PROOF_H

#include "net/transport.h"

#define LIGI_UCX_NONCE_BYTES 32u
#define LIGI_UCX_PROOF_BYTES (4 + 2 * LIGI_UCX_NONCE_BYTES)

typedef struct ligi_ucx_proving {
    int needed, done;
    ligi_net_key key;                        /* which the client says, in its first message */
    int step;                                /* of the message that must come next; 0: none */
    uint8_t nonces[2][LIGI_UCX_NONCE_BYTES]; /* of client and server */
} ligi_ucx_proving;

struct ligi_ucx_wire;

/* Begins: the connecting end speaks first. */
lig_status ligi_ucx_prove_start(struct ligi_ucx_wire *wire);
/* A message LIGI_UCX_PROOF has come. */
lig_status ligi_ucx_prove_take(struct ligi_ucx_wire *wire, const void *data, size_t bytes);

#endif
