#include "net/ucx/ucx.h"
#include "net/ucx/ucx_send.h"

#include <string.h>
#include <sys/random.h>

typedef struct ucx_words {
    uint8_t step;
    char side[7]; /* "server", "client" */
    uint8_t nonces[2][LIGI_UCX_NONCE_BYTES];
} ucx_words;

static lig_status proof_of(ligi_ucx_wire *wire, const char *side,
                           uint8_t proof[LIGI_UCX_NONCE_BYTES])
{
    ucx_words words = {0};

    memcpy(words.side, side, strlen(side));
    memcpy(words.nonces, wire->proving.nonces, sizeof words.nonces);
    return wire->self->host->net_prove(wire->self->net, wire->proving.key,
                                       &(struct iovec){&words, sizeof words}, proof);
}

static lig_status make_nonce(const ligi_ucx_wire *wire, uint8_t nonce[LIGI_UCX_NONCE_BYTES])
{
    if (getrandom(nonce, LIGI_UCX_NONCE_BYTES, 0) == (ssize_t)LIGI_UCX_NONCE_BYTES)
        return LIG_OK;
    return wire->self->host->fail(LIG_E_IO, "getrandom failed");
}

static lig_status say(ligi_ucx_wire *wire, uint8_t step, const uint8_t *nonce, const uint8_t *proof)
{
    uint8_t data[LIGI_UCX_PROOF_BYTES] = {step, (uint8_t)wire->proving.key};

    if (nonce != NULL)
        memcpy(data + 4, nonce, LIGI_UCX_NONCE_BYTES);
    if (proof != NULL)
        memcpy(data + 4 + LIGI_UCX_NONCE_BYTES, proof, LIGI_UCX_NONCE_BYTES);
    return ligi_ucx_wire_say(wire, LIGI_UCX_PROOF, data, sizeof data);
}

lig_status ligi_ucx_prove_start(ligi_ucx_wire *wire)
{
    ligi_ucx_proving *proving = &wire->proving;

    if (!proving->needed)
        return LIG_OK;
    proving->step = wire->accepted ? 1 : 2;
    if (wire->accepted)
        return LIG_OK;
    proving->key = wire->self->host->link_key(wire->link);
    LIG_TRY(make_nonce(wire, proving->nonces[0]));
    return say(wire, 1, proving->nonces[0], NULL);
}

static lig_status refuse(const ligi_ucx_wire *wire)
{
    const ligi_host *host = wire->self->host;

    return host->fail(
        LIG_E_DENIED,
        "%s did not prove that it has this group's secret; both ends need the same secret, the "
        "same group (same rendezvous port), and the same version of Ligament",
        host->link_address(wire->link));
}

/* Constant time. */
static lig_status check(ligi_ucx_wire *wire, const char *side, const uint8_t *proof)
{
    uint8_t wanted[LIGI_UCX_NONCE_BYTES];
    volatile uint8_t differ = 0;

    LIG_TRY(proof_of(wire, side, wanted));
    for (size_t i = 0; i < LIGI_UCX_NONCE_BYTES; i++)
        differ = (uint8_t)(differ | (wanted[i] ^ proof[i]));
    return differ == 0 ? LIG_OK : refuse(wire);
}

lig_status ligi_ucx_prove_take(ligi_ucx_wire *wire, const void *data, size_t bytes)
{
    ligi_ucx_proving *proving = &wire->proving;
    const uint8_t *in = data, *nonce = in + 4, *proof = in + 4 + LIGI_UCX_NONCE_BYTES;
    uint8_t mine[LIGI_UCX_NONCE_BYTES];

    if (bytes != LIGI_UCX_PROOF_BYTES || !proving->needed || proving->done ||
        in[0] != proving->step)
        return refuse(wire);
    switch (in[0]) {
    case 1:
        if (in[1] >= LIGI_KEYS)
            return refuse(wire);
        proving->key = (ligi_net_key)in[1];
        memcpy(proving->nonces[0], nonce, LIGI_UCX_NONCE_BYTES);
        LIG_TRY(make_nonce(wire, proving->nonces[1]));
        LIG_TRY(proof_of(wire, "server", mine));
        proving->step = 3;
        return say(wire, 2, proving->nonces[1], mine);
    case 2:
        memcpy(proving->nonces[1], nonce, LIGI_UCX_NONCE_BYTES);
        LIG_TRY(check(wire, "server", proof));
        LIG_TRY(proof_of(wire, "client", mine));
        LIG_TRY(say(wire, 3, NULL, mine));
        break;
    default:
        LIG_TRY(check(wire, "client", proof));
        wire->self->host->link_proved(wire->link, proving->key);
        break;
    }
    proving->done = 1;
    proving->step = 0;
    return LIG_OK;
}
