#include "net/secure/tls_record.h"

#include <string.h>

#define LABEL_BYTES_MAX 32

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
        return lig_fail(LIG_E_UNSUPPORTED, "OpenSSL cannot compute HMAC-SHA256");
    memcpy(out, block, bytes);
    explicit_bzero(block, sizeof block);
    return LIG_OK;
}

static lig_status set_key(ligi_tls_key *key)
{
    const ligi_openssl *openssl = key->gcm->openssl;
    uint8_t bytes[LIGI_GCM_KEY];

    LIG_TRY(expand(openssl, key->secret, "iv", key->iv, sizeof key->iv));
    LIG_TRY(expand(openssl, key->secret, "key", bytes, sizeof bytes));
    lig_status status = key->gcm->ops->set_key(key->gcm, bytes, key->seals, &key->cipher);
    explicit_bzero(bytes, sizeof bytes);
    key->sequence = 0;
    return status;
}

lig_status ligi_tls_key_init(const ligi_gcm *gcm, ligi_tls_key *key,
                             const uint8_t secret[LIGI_TLS_SECRET], int seals)
{
    key->gcm = gcm;
    key->seals = seals;
    memcpy(key->secret, secret, LIGI_TLS_SECRET);
    return set_key(key);
}

lig_status ligi_tls_key_next(ligi_tls_key *key)
{
    uint8_t next[LIGI_TLS_SECRET];

    LIG_TRY(expand(key->gcm->openssl, key->secret, "traffic upd", next, sizeof next));
    memcpy(key->secret, next, sizeof next);
    explicit_bzero(next, sizeof next);
    return set_key(key);
}

void ligi_tls_key_fini(ligi_tls_key *key)
{
    if (key->gcm != NULL)
        key->gcm->ops->release(key->gcm, key->cipher);
    explicit_bzero(key, sizeof *key);
}

/* The nonce of a record is the iv XORed with the record's number. */
static void next_nonce(ligi_tls_key *key, uint8_t nonce[LIGI_GCM_NONCE])
{
    memcpy(nonce, key->iv, LIGI_GCM_NONCE);
    for (size_t i = 0; i < 8; i++)
        nonce[LIGI_GCM_NONCE - 1 - i] ^= (uint8_t)(key->sequence >> (8 * i));
    key->sequence++;
}

lig_status ligi_tls_seal(ligi_tls_key *key, ligi_tls_type type, const void *data, size_t bytes,
                         uint8_t *record)
{
    size_t inside = bytes + 1 + LIGI_GCM_TAG;
    uint8_t nonce[LIGI_GCM_NONCE];
    const ligi_gcm_record one = {.nonce = nonce,
                                 .header = record,
                                 .header_bytes = LIGI_TLS_HEADER,
                                 .in = data,
                                 .out = record + LIGI_TLS_HEADER,
                                 .bytes = bytes};

    record[0] = LIGI_TLS_DATA; /* all record types look alike from outside */
    record[1] = 3;
    record[2] = 3;
    record[3] = (uint8_t)(inside >> 8);
    record[4] = (uint8_t)inside;
    next_nonce(key, nonce);
    if (key->gcm->ops->seal(key->gcm, key->cipher, &one, (uint8_t)type))
        return LIG_OK;
    return lig_fail(LIG_E_INTERNAL, "encryption of a record failed");
}

lig_status ligi_tls_length(const uint8_t header[LIGI_TLS_HEADER], size_t *bytes)
{
    size_t inside = (size_t)header[3] << 8 | header[4];

    if (header[0] != LIGI_TLS_DATA || header[1] != 3 || header[2] != 3)
        return lig_fail(LIG_E_CORRUPT, "not a TLS 1.3 record");
    if (inside < 1 + LIGI_GCM_TAG || inside > LIGI_TLS_DATA_MAX + 1 + LIGI_GCM_TAG)
        return lig_fail(LIG_E_CORRUPT, "invalid TLS record length %zu", inside);
    *bytes = LIGI_TLS_HEADER + inside;
    return LIG_OK;
}

size_t ligi_tls_data_bytes(size_t record_bytes)
{
    return record_bytes - LIGI_TLS_MORE;
}

/* The type follows the data, and may be followed by zero padding, which we never send. */
lig_status ligi_tls_open(ligi_tls_key *key, const uint8_t *record, size_t record_bytes, void *data,
                         int *type)
{
    uint8_t nonce[LIGI_GCM_NONCE], type_byte = 0;
    const ligi_gcm_record one = {.nonce = nonce,
                                 .header = record,
                                 .header_bytes = LIGI_TLS_HEADER,
                                 .in = record + LIGI_TLS_HEADER,
                                 .out = data,
                                 .bytes = ligi_tls_data_bytes(record_bytes)};

    next_nonce(key, nonce);
    if (!key->gcm->ops->open(key->gcm, key->cipher, &one, &type_byte))
        return lig_fail(LIG_E_CORRUPT, "TLS record authentication failed");
    *type = type_byte;
    return LIG_OK;
}
