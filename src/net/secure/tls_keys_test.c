/* What the accepting end takes for a key, against a client that is not ours. */
#include "net/secure/tls_keys.h"

#include "base/test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef"
enum { IDENTITY_BYTES = 64, KEY_BYTES = 32, STEPS = 20 };

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

/* How the handshake of that client with `keys` ends. */
static lig_status meet(ligi_tls_keys *keys)
{
    const ligi_openssl *openssl = forged.openssl = ligi_openssl_loaded();
    int pair[2], done = 0;
    lig_status status = LIG_OK;
    ligi_tls_channel *server;
    BIO_METHOD *method = ligi_tls_socket_method(openssl);
    SSL_CTX *context = openssl->SSL_CTX_new(openssl->TLS_method());
    openssl->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    openssl->SSL_CTX_set_psk_use_session_callback(context, offer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    ligi_tls_socket end = {.fd = pair[0]};
    SSL *client = openssl->SSL_new(context);
    BIO *bio = ligi_tls_socket_bio(openssl, method, &end);
    openssl->SSL_set_bio(client, bio, bio);
    openssl->SSL_set_connect_state(client);
    assert_ok(ligi_tls_channel_open(keys, pair[1], LIGI_SECURE_ACCEPT, "the test", &server));
    for (int i = 0; i < STEPS && !done && status == LIG_OK; i++) {
        openssl->SSL_do_handshake(client);
        status = ligi_tls_channel_handshake(server, &done);
    }
    assert_true(done || status != LIG_OK);
    ligi_tls_channel_close(server);
    openssl->SSL_free(client);
    openssl->SSL_CTX_free(context);
    openssl->BIO_meth_free(method);
    openssl->ERR_clear_error();
    close(pair[0]);
    close(pair[1]);
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

/* How a handshake of two of ours ends; *tag is what the accepting end found. */
static lig_status meet_with(const char *secret, ligi_tls_keys *keys, uint64_t *tag)
{
    int pair[2], client_done = 0, server_done = 0;
    ligi_tls_keys *mine = NULL;
    ligi_tls_channel *client, *server;
    lig_status status = LIG_OK, answer = LIG_OK;
    assert_ok(ligi_tls_keys_open(secret, strlen(secret), "store", &mine));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_ok(ligi_tls_channel_open(mine, pair[0], LIGI_SECURE_CONNECT, "server", &client));
    assert_ok(ligi_tls_channel_open(keys, pair[1], LIGI_SECURE_ACCEPT, "client", &server));
    for (int i = 0; i < STEPS && status == LIG_OK && !(client_done && server_done); i++) {
        if (answer == LIG_OK)
            answer = ligi_tls_channel_handshake(client, &client_done);
        status = ligi_tls_channel_handshake(server, &server_done);
    }
    *tag = ligi_tls_channel_tag(server);
    assert_int_equal(status == LIG_OK, server_done);
    ligi_tls_channel_close(client);
    ligi_tls_channel_close(server);
    ligi_tls_keys_close(mine);
    close(pair[0]);
    close(pair[1]);
    return status;
}

static void test_peers_are_told_apart_by_their_secrets(void **state)
{
    static const char first[] = "first 0123456789abcdef0123456789",
                      second[] = "second 0123456789abcdef012345678";
    const ligi_net_peer_secret peers[] = {{first, sizeof first - 1, 7},
                                          {second, sizeof second - 1, 8}};
    ligi_tls_keys *keys = NULL;
    uint64_t tag;
    (void)state;
    assert_ok(ligi_tls_keys_open(SECRET, sizeof SECRET - 1, "store", &keys));
    assert_int_equal(meet_with(first, keys, &tag), LIG_E_DENIED);
    assert_ok(ligi_tls_keys_set_peers(keys, peers, 2, "store"));
    assert_ok(meet_with(first, keys, &tag));
    assert_int_equal(tag, 7);
    assert_ok(meet_with(second, keys, &tag));
    assert_int_equal(tag, 8);
    assert_ok(meet_with(SECRET, keys, &tag));
    assert_int_equal(tag, 0);
    assert_ok(ligi_tls_keys_set_peers(keys, peers + 1, 1, "store"));
    assert_int_equal(meet_with(first, keys, &tag), LIG_E_DENIED);
    assert_ok(meet_with(second, keys, &tag));
    assert_ok(ligi_tls_keys_set_peers(keys, NULL, 0, "store"));
    assert_int_equal(meet_with(second, keys, &tag), LIG_E_DENIED);
    ligi_tls_keys_close(keys);
}

int main(void)
{
    const ligi_openssl *openssl;
    if (ligi_openssl_load(&openssl) != LIG_OK) {
        print_message("left out: %s\n", lig_error_text());
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_that_is_not_set_opens_nothing),
        cmocka_unit_test(test_peers_are_told_apart_by_their_secrets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
