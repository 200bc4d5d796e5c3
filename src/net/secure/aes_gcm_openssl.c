#include <string.h>

#include "net/secure/aes_gcm.h"

static lig_status set_key(const ligi_gcm *gcm, const uint8_t key[LIGI_GCM_KEY], int seals,
                          void **cipher)
{
    const ligi_openssl *openssl = gcm->openssl;

    if (*cipher == NULL)
        *cipher = openssl->EVP_CIPHER_CTX_new();
    if (*cipher == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a secure connection");
    EVP_CIPHER *kind = openssl->EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    int set =
        kind != NULL && openssl->EVP_CipherInit_ex(*cipher, kind, NULL, key, NULL, seals) == 1;
    openssl->EVP_CIPHER_free(kind);
    return set ? LIG_OK : lig_fail(LIG_E_UNSUPPORTED, "this OpenSSL does not allow AES-128-GCM");
}

static int begin(const ligi_openssl *openssl, EVP_CIPHER_CTX *cipher, const ligi_gcm_record *record)
{
    int put;

    return openssl->EVP_CipherInit_ex(cipher, NULL, NULL, NULL, record->nonce, -1) == 1 &&
           openssl->EVP_CipherUpdate(cipher, NULL, &put, record->header,
                                     (int)record->header_bytes) == 1;
}

/* OpenSSL appends failures to the thread's error queue, which must stay empty. */
static int done(const ligi_openssl *openssl, int well)
{
    if (!well)
        openssl->ERR_clear_error();
    return well;
}

static int seal(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t type)
{
    const ligi_openssl *openssl = gcm->openssl;
    uint8_t *out = record->out;
    int put, bytes = (int)record->bytes;

    return done(openssl, begin(openssl, cipher, record) &&
                             (bytes == 0 || openssl->EVP_CipherUpdate(cipher, out, &put, record->in,
                                                                      bytes) == 1) &&
                             openssl->EVP_CipherUpdate(cipher, out + bytes, &put, &type, 1) == 1 &&
                             openssl->EVP_CipherFinal_ex(cipher, out + bytes + 1, &put) == 1 &&
                             openssl->EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG,
                                                          LIGI_GCM_TAG, out + bytes + 1) == 1);
}

static int open(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t *type)
{
    const ligi_openssl *openssl = gcm->openssl;
    const uint8_t *in = record->in;
    uint8_t tag[LIGI_GCM_TAG], none[LIGI_GCM_TAG];
    int put, bytes = (int)record->bytes;

    memcpy(tag, in + bytes + 1, sizeof tag); /* OpenSSL wants it writable */
    return done(
        openssl,
        begin(openssl, cipher, record) &&
            (bytes == 0 || openssl->EVP_CipherUpdate(cipher, record->out, &put, in, bytes) == 1) &&
            openssl->EVP_CipherUpdate(cipher, type, &put, in + bytes, 1) == 1 &&
            openssl->EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, LIGI_GCM_TAG, tag) == 1 &&
            openssl->EVP_CipherFinal_ex(cipher, none, &put) == 1);
}

static void release(const ligi_gcm *gcm, void *cipher)
{
    gcm->openssl->EVP_CIPHER_CTX_free(cipher);
}

const ligi_gcm_ops ligi_gcm_openssl = {"openssl", set_key, seal, open, release};
