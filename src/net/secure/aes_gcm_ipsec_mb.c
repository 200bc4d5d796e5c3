#include <stdlib.h>
#include <string.h>

#include "net/secure/aes_gcm.h"

typedef struct mb_cipher {
    _Alignas(LIGI_IPSEC_MB_ALIGN) uint8_t key[LIGI_IPSEC_MB_KEY];
    _Alignas(LIGI_IPSEC_MB_ALIGN) uint8_t context[LIGI_IPSEC_MB_CONTEXT];
} mb_cipher;

static lig_status set_key(const ligi_gcm *gcm, const uint8_t key[LIGI_GCM_KEY], int seals,
                          void **cipher)
{
    (void)seals; /* the same key serves both */
    if (*cipher == NULL)
        *cipher = aligned_alloc(LIGI_IPSEC_MB_ALIGN, sizeof(mb_cipher));
    mb_cipher *made = *cipher;
    if (made == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a secure connection");
    memset(made, 0, sizeof *made);
    gcm->ipsec_mb.pre(key, made->key);
    return LIG_OK;
}

static int seal(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t type)
{
    const ligi_ipsec_mb *mb = &gcm->ipsec_mb;
    mb_cipher *self = cipher;
    uint8_t *out = record->out;

    mb->init(self->key, self->context, record->nonce, record->header, record->header_bytes);
    if (record->bytes > 0)
        mb->encrypt(self->key, self->context, out, record->in, record->bytes);
    mb->encrypt(self->key, self->context, out + record->bytes, &type, 1);
    mb->encrypt_end(self->key, self->context, out + record->bytes + 1, LIGI_GCM_TAG);
    return 1;
}

/* The library computes the tag; the caller must compare it. */
static int open(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t *type)
{
    const ligi_ipsec_mb *mb = &gcm->ipsec_mb;
    mb_cipher *self = cipher;
    const uint8_t *in = record->in;
    uint8_t tag[LIGI_GCM_TAG] = {0};

    mb->init(self->key, self->context, record->nonce, record->header, record->header_bytes);
    if (record->bytes > 0)
        mb->decrypt(self->key, self->context, record->out, in, record->bytes);
    mb->decrypt(self->key, self->context, type, in + record->bytes, 1);
    mb->decrypt_end(self->key, self->context, tag, sizeof tag);
    int same = gcm->openssl->CRYPTO_memcmp(tag, in + record->bytes + 1, sizeof tag) == 0;
    explicit_bzero(tag, sizeof tag); /* of a forged record it is the one that would have passed */
    return same;
}

static void release(const ligi_gcm *gcm, void *cipher)
{
    (void)gcm;
    if (cipher != NULL)
        explicit_bzero(cipher, sizeof(mb_cipher));
    free(cipher);
}

const ligi_gcm_ops ligi_gcm_ipsec_mb = {"ipsec-mb", set_key, seal, open, release};
