/* What the accepting end takes for a key, against a client that is not ours. */
#include "net/secure/tls_handshake.h"

#include "base/test.h"

#include <string.h>

#define SECRET "0123456789abcdef0123456789abcdef"
enum { RING = 1 << 16, IDENTITY_BYTES = 64, KEY_BYTES = 32, STEPS = 20 };

static struct forged { /* what the client offers; OpenSSL's callback has no argument for it */
    const ligi_openssl *openssl;
    unsigned char identity[IDENTITY_BYTES], key[KEY_BYTES];
} forged;

static int offer(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *bytes,
                 SSL_SESSION **session)
{
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const ligi_openssl *openssl = forged.openssl;
    (void)md;
    *session = openssl->SSL_SESSION_new();
    openssl->SSL_SESSION_set1_master_key(*session, forged.key, KEY_BYTES);
    openssl->SSL_SESSION_set_cipher(*session, openssl->SSL_CIPHER_find(ssl, aes_128_gcm_sha256));
    openssl->SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    *identity = forged.identity;
    *bytes = IDENTITY_BYTES;
    return 1;
}

static void move(const ligi_openssl *openssl, BIO *from, BIO *to)
{
    char *data, *room;
    for (int bytes; (bytes = openssl->BIO_nread0(from, &data)) > 0;) {
        int free_bytes = openssl->BIO_nwrite0(to, &room);
        int moved = bytes < free_bytes ? bytes : free_bytes;
        if (moved <= 0)
            return;
        openssl->BIO_nread(from, &data, moved);
        openssl->BIO_nwrite(to, &room, moved);
        memcpy(room, data, (size_t)moved);
    }
}

/* How the handshake of that client with `keys` ends. */
static lig_status meet(ligi_tls_keys *keys)
{
    const ligi_openssl *openssl = forged.openssl = ligi_tls_keys_openssl(keys);
    BIO *inner, *wire;
    int done = 0;
    lig_status status = LIG_OK;
    ligi_tls_handshake server = {0};
    SSL_CTX *context = openssl->SSL_CTX_new(openssl->TLS_method());
    openssl->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    openssl->SSL_CTX_set_psk_use_session_callback(context, offer);
    SSL *client = openssl->SSL_new(context);
    assert_int_equal(openssl->BIO_new_bio_pair(&inner, RING, &wire, RING), 1);
    openssl->SSL_set_bio(client, inner, inner);
    openssl->SSL_set_connect_state(client);
    assert_ok(ligi_tls_handshake_init(&server, keys, LIGI_SECURE_ACCEPT));
    for (int i = 0; i < STEPS && !done && status == LIG_OK; i++) {
        openssl->SSL_do_handshake(client);
        move(openssl, wire, server.wire);
        status = ligi_tls_handshake_step(&server, "the test", &done);
        move(openssl, server.wire, wire);
    }
    assert_true(done || status != LIG_OK);
    ligi_tls_handshake_fini(&server);
    openssl->SSL_free(client);
    openssl->BIO_free(wire);
    openssl->SSL_CTX_free(context);
    openssl->ERR_clear_error();
    return status;
}

/* A key that is not set is memory full of zeros, which anybody can offer. */
static void test_a_key_that_is_not_set_opens_nothing(void **state)
{
    (void)state;
    ligi_tls_keys *keys = NULL;
    struct iovec secret = {SECRET, sizeof SECRET - 1};
    assert_ok(ligi_tls_keys_open(SECRET, sizeof SECRET - 1, "mesh", &keys));
    memset(&forged, 0, sizeof forged);
    assert_int_equal(meet(keys), LIG_E_DENIED);
    assert_ok(ligi_tls_keys_set(keys, 1, &secret, "mesh member 1"));
    assert_int_equal(meet(keys), LIG_E_DENIED);
    assert_ok(ligi_tls_keys_set(keys, 1, &secret, NULL));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(meet(keys), LIG_E_DENIED);
        memset(forged.identity + 1, 'a', IDENTITY_BYTES - 1);
    }
    ligi_tls_keys_close(keys);
}

int main(void)
{
    ligi_openssl openssl;
    if (ligi_openssl_load(&openssl) != LIG_OK) {
        print_message("left out: %s\n", lig_error_text());
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_key_that_is_not_set_opens_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
