#include "net/secure/tls_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ligament/secret.h>

#include "base/error.h"
#include "net/secure/secret_memory.h"

#define KEY_BYTES 32
#define KEY_COUNT 2
#define IDENTITY_BYTES ((size_t)2 * KEY_BYTES)
#define GROUP_BYTES_MAX 1024
#define READ_BYTES ((size_t)128 * 1024) /* asked of the socket at once */

typedef struct peer_key {
    uint64_t tag;
    char identity[IDENTITY_BYTES + 1];
    unsigned char key[KEY_BYTES];
} peer_key;

struct ligi_tls_keys {
    const ligi_openssl *openssl;
    SSL_CTX *context;
    BIO_METHOD *method;
    unsigned char *key; /* KEY_COUNT x KEY_BYTES in a secret_memory */
    /* Sent unencrypted: hexadecimal, reveal nothing about secret or group. "": no such key. */
    char identities[KEY_COUNT][IDENTITY_BYTES + 1];
    peer_key *peers; /* a secret_memory */
    size_t peer_count;
};

static lig_status check_secret(size_t bytes, const char *group)
{
    if (bytes < LIG_SECRET_LEAST || bytes > LIG_SECRET_MOST)
        return lig_fail(LIG_E_INVALID,
                        "the secret has %zu bytes, expected %d to %d (recommended: 64 hexadecimal "
                        "digits of 32 random bytes)",
                        bytes, LIG_SECRET_LEAST, LIG_SECRET_MOST);
    if (strlen(group) > GROUP_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "the group id has %zu bytes, but the limit is %d",
                        strlen(group), GROUP_BYTES_MAX);
    return LIG_OK;
}

static lig_status fail_hmac(void)
{
    return lig_fail(LIG_E_UNSUPPORTED, "OpenSSL cannot compute HMAC-SHA256");
}

/* HMAC-SHA256(secret, label, 0, group): independent keys from one secret. */
static lig_status derive(const ligi_openssl *openssl, const void *secret, size_t bytes,
                         const char *label, const char *group, unsigned char out[KEY_BYTES])
{
    char text[GROUP_BYTES_MAX + 64];
    int length = snprintf(text, sizeof text, "%s", label);
    length += 1 + snprintf(text + length + 1, sizeof text - (size_t)length - 1, "%s", group);
    unsigned out_bytes = 0;
    if (openssl->HMAC(openssl->EVP_sha256(), secret, (int)bytes, (unsigned char *)text,
                      (size_t)length, out, &out_bytes) == NULL ||
        out_bytes != KEY_BYTES)
        return fail_hmac();
    return LIG_OK;
}

lig_status ligi_tls_fail_early(void)
{
    return lig_fail(LIG_E_DENIED, "no group key yet: join the group before connecting to members");
}

int ligi_tls_keys_has(const ligi_tls_keys *keys, unsigned which)
{
    return which < KEY_COUNT && keys->identities[which][0] != '\0';
}

static unsigned char *key_of(const ligi_tls_keys *keys, unsigned which)
{
    return keys->key + (size_t)which * KEY_BYTES;
}

/* The key and its identity, in hexadecimal. */
static lig_status make_key(const ligi_openssl *openssl, const struct iovec *secret,
                           const char *group, unsigned char key[KEY_BYTES],
                           char text[IDENTITY_BYTES + 1])
{
    unsigned char identity[KEY_BYTES];
    const void *data = secret->iov_base;
    size_t bytes = secret->iov_len;

    LIG_TRY(check_secret(bytes, group));
    LIG_TRY(derive(openssl, data, bytes, "ligament 1 tls key", group, key));
    LIG_TRY(derive(openssl, data, bytes, "ligament 1 tls identity", group, identity));
    for (size_t i = 0; i < KEY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", identity[i]);
    return LIG_OK;
}

lig_status ligi_tls_keys_set(ligi_tls_keys *keys, unsigned which, const struct iovec *secret,
                             const char *group)
{
    char *text = keys->identities[which];

    explicit_bzero(text, sizeof keys->identities[which]);
    explicit_bzero(key_of(keys, which), KEY_BYTES);
    return group ? make_key(keys->openssl, secret, group, key_of(keys, which), text) : LIG_OK;
}

static void forget_peers(ligi_tls_keys *keys)
{
    ligi_secret_memory_free(keys->peers);
    keys->peers = NULL;
    keys->peer_count = 0;
}

lig_status ligi_tls_keys_set_peers(ligi_tls_keys *keys, const ligi_net_peer_secret *secrets,
                                   size_t count, const char *group)
{
    forget_peers(keys);
    if (count == 0 || group == NULL)
        return LIG_OK;
    LIG_TRY(ligi_secret_memory_alloc(&keys->peers, count * sizeof *keys->peers, "keys"));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        const struct iovec secret = {(void *)secrets[i].secret, secrets[i].bytes};
        keys->peers[i].tag = secrets[i].tag;
        status =
            make_key(keys->openssl, &secret, group, keys->peers[i].key, keys->peers[i].identity);
    }
    if (status == LIG_OK)
        keys->peer_count = count;
    else
        forget_peers(keys);
    return status;
}

lig_status ligi_tls_prove(const struct iovec *secret, const char *group, const struct iovec *words,
                          uint8_t proof[LIGI_SECURE_PROOF])
{
    unsigned char key[KEY_BYTES];
    unsigned bytes = 0;
    const ligi_openssl *openssl;

    LIG_TRY(check_secret(secret->iov_len, group));
    LIG_TRY(ligi_openssl_load(&openssl));
    LIG_TRY(derive(openssl, secret->iov_base, secret->iov_len, "ligament 1 proof", group, key));
    int made = openssl->HMAC(openssl->EVP_sha256(), key, KEY_BYTES, words->iov_base, words->iov_len,
                             proof, &bytes) != NULL;
    explicit_bzero(key, sizeof key);
    return made && bytes == LIGI_SECURE_PROOF ? LIG_OK : fail_hmac();
}

/* OpenSSL takes a pre-shared key as a resumed session. */
static SSL_SESSION *make_session(const ligi_tls_keys *keys, const unsigned char *key, SSL *ssl)
{
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const ligi_openssl *openssl = keys->openssl;
    const SSL_CIPHER *cipher = openssl->SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = openssl->SSL_SESSION_new();

    if (session != NULL && cipher != NULL &&
        openssl->SSL_SESSION_set1_master_key(session, key, KEY_BYTES) == 1 &&
        openssl->SSL_SESSION_set_cipher(session, cipher) == 1 &&
        openssl->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    openssl->SSL_SESSION_free(session);
    return NULL;
}

static ligi_tls_party *party_of(const SSL *ssl)
{
    return ligi_openssl_loaded()->SSL_get_ex_data(ssl, 0);
}

/* Callback of the connecting end: which key to offer. */
static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *bytes,
                   SSL_SESSION **session)
{
    const ligi_tls_party *party = party_of(ssl);

    (void)md; /* OpenSSL compares it with the session's */
    *session = NULL;
    if (party != NULL && ligi_tls_keys_has(party->keys, party->which))
        *session = make_session(party->keys, key_of(party->keys, party->which), ssl);
    if (*session == NULL)
        return 0;
    *identity = (const unsigned char *)party->keys->identities[party->which];
    *bytes = IDENTITY_BYTES;
    return 1;
}

/* An identity is not secret, but identifies the key's owner: the comparison takes constant time
 * anyway. */
static void find_peer_key(SSL *ssl, ligi_tls_party *party, const unsigned char *identity,
                          SSL_SESSION **session)
{
    const ligi_tls_keys *keys = party->keys;
    for (size_t i = 0; i < keys->peer_count; i++)
        if (keys->openssl->CRYPTO_memcmp(identity, keys->peers[i].identity, IDENTITY_BYTES) == 0) {
            party->which = LIGI_KEY_MEET;
            party->tag = keys->peers[i].tag;
            *session = make_session(keys, keys->peers[i].key, ssl);
            return;
        }
}

/* Callback of the accepting end: looks up the offered identity. Without a session the handshake
 * fails, since there is no certificate. A key that is not set matches nobody: it and its identity
 * are zeros, which anybody can offer. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t bytes, SSL_SESSION **session)
{
    ligi_tls_party *party = party_of(ssl);

    *session = NULL;
    if (party == NULL)
        return 0;
    const ligi_tls_keys *keys = party->keys;
    for (unsigned i = 0; i < KEY_COUNT && bytes == IDENTITY_BYTES && *session == NULL; i++)
        if (ligi_tls_keys_has(keys, i) &&
            keys->openssl->CRYPTO_memcmp(identity, keys->identities[i], bytes) == 0) {
            party->which = i;
            *session = make_session(keys, key_of(keys, i), ssl);
        }
    if (bytes == IDENTITY_BYTES && *session == NULL)
        find_peer_key(ssl, party, identity, session);
    return 1;
}

static lig_status make_context(ligi_tls_keys *keys)
{
    const ligi_openssl *openssl = keys->openssl;
    SSL_CTX *context = openssl->SSL_CTX_new(openssl->TLS_method());
    char groups[] = "X25519:P-256";

    if (context == NULL)
        return lig_fail(LIG_E_UNSUPPORTED, "SSL_CTX_new failed: check openssl.cnf");
    keys->context = context;
    openssl->SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                              SSL_OP_NO_RENEGOTIATION);
    openssl->SSL_CTX_set_psk_use_session_callback(context, use_key);
    openssl->SSL_CTX_set_psk_find_session_callback(context, find_key);
    openssl->SSL_CTX_set_default_read_buffer_len(context, READ_BYTES);
    openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_READ_AHEAD, 1, NULL);
    /* A record that the socket has not taken is offered again from another buffer. */
    openssl->SSL_CTX_ctrl(context, SSL_CTRL_MODE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, 0, NULL);
    if (openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_GROUPS_LIST, 0, groups) != 1 ||
        openssl->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
        openssl->SSL_CTX_set_num_tickets(context, 0) != 1)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "this OpenSSL does not allow TLS 1.3 with AES-128-GCM and X25519 or P-256");
    return LIG_OK;
}

lig_status ligi_tls_keys_open(const void *secret, size_t bytes, const char *group,
                              ligi_tls_keys **keys)
{
    ligi_tls_keys *made;

    LIG_TRY(check_secret(bytes, group));
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "keys"));
    lig_status status = ligi_secret_memory_alloc(&made->key, KEY_COUNT * KEY_BYTES, "keys");
    if (status == LIG_OK)
        status = ligi_openssl_load(&made->openssl);
    if (status == LIG_OK)
        status = ligi_tls_keys_set(made, 0, &(struct iovec){(void *)secret, bytes}, group);
    if (status == LIG_OK)
        status = make_context(made);
    if (status == LIG_OK && (made->method = ligi_tls_socket_method(made->openssl)) == NULL)
        status = lig_fail(LIG_E_NOMEM, "out of memory for keys");
    if (status != LIG_OK) {
        ligi_tls_keys_close(made);
        return status;
    }
    *keys = made;
    return LIG_OK;
}

void ligi_tls_keys_close(ligi_tls_keys *keys)
{
    if (keys == NULL)
        return;
    if (keys->context != NULL)
        keys->openssl->SSL_CTX_free(keys->context);
    if (keys->method != NULL)
        keys->openssl->BIO_meth_free(keys->method);
    ligi_secret_memory_free(keys->key);
    forget_peers(keys);
    free(keys);
}

lig_status ligi_tls_keys_connection(ligi_tls_party *party, ligi_tls_socket *socket,
                                    ligi_tls_channel_end end, SSL **made)
{
    const ligi_openssl *openssl = party->keys->openssl;
    SSL *ssl = openssl->SSL_new(party->keys->context);
    BIO *bio = ligi_tls_socket_bio(openssl, party->keys->method, socket);

    if (ssl != NULL && bio != NULL)
        openssl->SSL_set_bio(ssl, bio, bio);
    if (ssl == NULL || bio == NULL || openssl->SSL_set_ex_data(ssl, 0, party) != 1) {
        if (ssl == NULL || bio == NULL)
            openssl->BIO_free(bio);
        openssl->SSL_free(ssl);
        openssl->ERR_clear_error();
        return lig_fail(LIG_E_NOMEM, "out of memory for a secure connection");
    }
    if (end == LIGI_SECURE_ACCEPT) {
        openssl->SSL_set_accept_state(ssl);
    } else {
        openssl->SSL_set_connect_state(ssl);
        /* No certificate authority is trusted, so a server that answers with a certificate is
         * rejected. */
        openssl->SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    }
    *made = ssl;
    return LIG_OK;
}
