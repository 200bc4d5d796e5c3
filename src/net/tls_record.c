#include "net/tls_record.h"

#include <string.h>

#define LABEL_BYTES_MAX 32
#define KEY 16
#define NONCE 12
#define TAG 16

/* What a record holds: data, and one byte behind it. */
typedef struct content {
    const uint8_t *in;
    uint8_t *out;
    size_t bytes; /* of both */
} content;

/* HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context and at most one block of
 * output. */
static lig_status expand(const ligi_openssl *openssl, const uint8_t secret[LIGI_TLS_SECRET],
                         const char *label, uint8_t *out, size_t bytes)
{
    uint8_t info[2 + 1 + 6 + LABEL_BYTES_MAX + 1 + 1], block[LIGI_TLS_SECRET];
    size_t label_bytes = strlen(label), at = 0;
    unsigned block_bytes = 0;

    info[at++] = 0;
    info[at++] = (uint8_t)bytes;
    info[at++] = (uint8_t)(6 + label_bytes);
    memcpy(info + at, "tls13 ", 6);
    memcpy(info + at + 6, label, label_bytes);
    at += 6 + label_bytes;
    info[at++] = 0;
    info[at++] = 1; /* HKDF's number of the block */
    if (openssl->HMAC(openssl->EVP_sha256(), secret, LIGI_TLS_SECRET, info, at, block,
                      &block_bytes) == NULL ||
        block_bytes < bytes)
        return lig_fail(LIG_E_UNSUPPORTED, "OpenSSL does not compute HMAC-SHA256 here");
    memcpy(out, block, bytes);
    explicit_bzero(block, sizeof block);
    return LIG_OK;
}

static lig_status set_cipher(const ligi_openssl *openssl, ligi_tls_key *key, const uint8_t *bytes,
                             int seals)
{
    EVP_CIPHER *cipher = openssl->EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    int set = cipher != NULL &&
              openssl->EVP_CipherInit_ex(key->cipher, cipher, NULL, bytes, key->iv, seals) == 1;

    openssl->EVP_CIPHER_free(cipher);
    return set ? LIG_OK : lig_fail(LIG_E_UNSUPPORTED, "this OpenSSL does not allow AES-128-GCM");
}

static lig_status set_key(const ligi_openssl *openssl, ligi_tls_key *key, int seals)
{
    uint8_t bytes[KEY];

    LIG_TRY(expand(openssl, key->secret, "iv", key->iv, sizeof key->iv));
    LIG_TRY(expand(openssl, key->secret, "key", bytes, sizeof bytes));
    lig_status status = set_cipher(openssl, key, bytes, seals);
    explicit_bzero(bytes, sizeof bytes);
    key->sequence = 0;
    return status;
}

lig_status ligi_tls_key_init(const ligi_openssl *openssl, ligi_tls_key *key,
                             const uint8_t secret[LIGI_TLS_SECRET], int seals)
{
    if (key->cipher == NULL)
        key->cipher = openssl->EVP_CIPHER_CTX_new();
    if (key->cipher == NULL)
        return lig_fail(LIG_E_NOMEM, "no memory for a secure connection");
    memcpy(key->secret, secret, LIGI_TLS_SECRET);
    return set_key(openssl, key, seals);
}

lig_status ligi_tls_key_next(const ligi_openssl *openssl, ligi_tls_key *key, int seals)
{
    uint8_t next[LIGI_TLS_SECRET];

    LIG_TRY(expand(openssl, key->secret, "traffic upd", next, sizeof next));
    memcpy(key->secret, next, sizeof next);
    explicit_bzero(next, sizeof next);
    return set_key(openssl, key, seals);
}

void ligi_tls_key_fini(const ligi_openssl *openssl, ligi_tls_key *key)
{
    if (key->cipher != NULL)
        openssl->EVP_CIPHER_CTX_free(key->cipher);
    explicit_bzero(key, sizeof *key);
}

/* Every record has a nonce of its own: the iv with the record's number laid over its end. */
static void next_nonce(ligi_tls_key *key, uint8_t nonce[NONCE])
{
    memcpy(nonce, key->iv, NONCE);
    for (size_t i = 0; i < 8; i++)
        nonce[NONCE - 1 - i] ^= (uint8_t)(key->sequence >> (8 * i));
    key->sequence++;
}

static int begin(const ligi_openssl *openssl, ligi_tls_key *key, const uint8_t *nonce,
                 const uint8_t *header)
{
    int bytes;

    return openssl->EVP_CipherInit_ex(key->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           openssl->EVP_CipherUpdate(key->cipher, NULL, &bytes, header, (int)LIGI_TLS_HEADER) == 1;
}

static int encrypt(const ligi_openssl *openssl, ligi_tls_key *key, const uint8_t *nonce,
                   const content *text, uint8_t type)
{
    EVP_CIPHER_CTX *cipher = key->cipher;
    uint8_t *out = text->out;
    int put, bytes = (int)text->bytes;

    return begin(openssl, key, nonce, out - LIGI_TLS_HEADER) &&
           (bytes == 0 || openssl->EVP_CipherUpdate(cipher, out, &put, text->in, bytes) == 1) &&
           openssl->EVP_CipherUpdate(cipher, out + bytes, &put, &type, 1) == 1 &&
           openssl->EVP_CipherFinal_ex(cipher, out + bytes + 1, &put) == 1 &&
           openssl->EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, out + bytes + 1) == 1;
}

static int decrypt(const ligi_openssl *openssl, ligi_tls_key *key, const uint8_t *nonce,
                   const content *text, uint8_t *type)
{
    EVP_CIPHER_CTX *cipher = key->cipher;
    const uint8_t *in = text->in;
    uint8_t tag[TAG], none[TAG];
    int put, bytes = (int)text->bytes;

    memcpy(tag, in + bytes + 1, sizeof tag); /* OpenSSL wants it writable */
    return begin(openssl, key, nonce, in - LIGI_TLS_HEADER) &&
           (bytes == 0 || openssl->EVP_CipherUpdate(cipher, text->out, &put, in, bytes) == 1) &&
           openssl->EVP_CipherUpdate(cipher, type, &put, in + bytes, 1) == 1 &&
           openssl->EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1 &&
           openssl->EVP_CipherFinal_ex(cipher, none, &put) == 1;
}

lig_status ligi_tls_seal(const ligi_openssl *openssl, ligi_tls_key *key, ligi_tls_type type,
                         const void *data, size_t bytes, uint8_t *record)
{
    content text = {data, record + LIGI_TLS_HEADER, bytes};
    size_t inside = bytes + 1 + TAG;
    uint8_t nonce[NONCE];

    record[0] = LIGI_TLS_DATA; /* all look alike from outside */
    record[1] = 3;
    record[2] = 3;
    record[3] = (uint8_t)(inside >> 8);
    record[4] = (uint8_t)inside;
    next_nonce(key, nonce);
    if (encrypt(openssl, key, nonce, &text, (uint8_t)type))
        return LIG_OK;
    openssl->ERR_clear_error();
    return lig_fail(LIG_E_INTERNAL, "a record could not be encrypted");
}

lig_status ligi_tls_length(const uint8_t header[LIGI_TLS_HEADER], size_t *bytes)
{
    size_t inside = (size_t)header[3] << 8 | header[4];

    if (header[0] != LIGI_TLS_DATA || header[1] != 3 || header[2] != 3)
        return lig_fail(LIG_E_CORRUPT, "bytes came that are no TLS 1.3 record");
    if (inside < 1 + TAG || inside > LIGI_TLS_DATA_MAX + 1 + TAG)
        return lig_fail(LIG_E_CORRUPT, "a TLS record of %zu bytes came, which cannot be", inside);
    *bytes = LIGI_TLS_HEADER + inside;
    return LIG_OK;
}

size_t ligi_tls_data_bytes(size_t record_bytes)
{
    return record_bytes - LIGI_TLS_MORE;
}

/* The type stands behind the data, and zeros may stand behind it: no end of ours pads. */
lig_status ligi_tls_open(const ligi_openssl *openssl, ligi_tls_key *key, const uint8_t *record,
                         size_t record_bytes, void *data, int *type)
{
    content text = {record + LIGI_TLS_HEADER, data, ligi_tls_data_bytes(record_bytes)};
    uint8_t nonce[NONCE], type_byte = 0;

    next_nonce(key, nonce);
    if (decrypt(openssl, key, nonce, &text, &type_byte)) {
        *type = type_byte;
        return LIG_OK;
    }
    openssl->ERR_clear_error();
    return lig_fail(LIG_E_CORRUPT, "a TLS record came that was not encrypted by the peer");
}
