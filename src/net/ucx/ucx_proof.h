/* Proves that both ends have the endpoint's secret, with three messages before the first hello. UCX
 * does not encrypt, so this keeps strangers out but does not prevent eavesdropping
 * (docs/security.md).
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
    ligi_net_key key;                        /* sent by the client in its first message */
    int step;                                /* of the message that must come next; 0: none */
    uint8_t nonces[2][LIGI_UCX_NONCE_BYTES]; /* of client and server */
} ligi_ucx_proving;

struct ligi_ucx_wire;

/* Begins the proof: the connecting end sends the first message. */
lig_status ligi_ucx_prove_start(struct ligi_ucx_wire *wire);
/* A message LIGI_UCX_PROOF has arrived. */
lig_status ligi_ucx_prove_take(struct ligi_ucx_wire *wire, const void *data, size_t bytes);

#endif
