/* The functions of OpenSSL 3 that are used here. Types come from its headers; the library is loaded
 * when a secret is first used, so programs without a secret do not need OpenSSL. */
#ifndef LIGI_OPENSSL_LIBRARY_H
#define LIGI_OPENSSL_LIBRARY_H

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <ligament/base.h>

/* CALL(library, name) */
#define LIGI_OPENSSL_CALLS(CALL)                                                                   \
    CALL(ssl, OPENSSL_init_ssl)                                                                    \
    CALL(ssl, TLS_method)                                                                          \
    CALL(ssl, SSL_CTX_new)                                                                         \
    CALL(ssl, SSL_CTX_free)                                                                        \
    CALL(ssl, SSL_CTX_ctrl)                                                                        \
    CALL(ssl, SSL_CTX_set_options)                                                                 \
    CALL(ssl, SSL_CTX_set_ciphersuites)                                                            \
    CALL(ssl, SSL_CTX_set_num_tickets)                                                             \
    CALL(ssl, SSL_CTX_set_default_read_buffer_len)                                                 \
    CALL(ssl, SSL_CTX_set_psk_find_session_callback)                                               \
    CALL(ssl, SSL_CTX_set_psk_use_session_callback)                                                \
    CALL(ssl, SSL_new)                                                                             \
    CALL(ssl, SSL_free)                                                                            \
    CALL(ssl, SSL_set_bio)                                                                         \
    CALL(ssl, SSL_set_verify)                                                                      \
    CALL(ssl, SSL_set_accept_state)                                                                \
    CALL(ssl, SSL_set_connect_state)                                                               \
    CALL(ssl, SSL_set_ex_data)                                                                     \
    CALL(ssl, SSL_get_ex_data)                                                                     \
    CALL(ssl, SSL_do_handshake)                                                                    \
    CALL(ssl, SSL_read_ex)                                                                         \
    CALL(ssl, SSL_write_ex)                                                                        \
    CALL(ssl, SSL_key_update)                                                                      \
    CALL(ssl, SSL_shutdown)                                                                        \
    CALL(ssl, SSL_get_error)                                                                       \
    CALL(ssl, SSL_session_reused)                                                                  \
    CALL(ssl, SSL_version)                                                                         \
    CALL(ssl, SSL_CIPHER_find)                                                                     \
    CALL(ssl, SSL_SESSION_new)                                                                     \
    CALL(ssl, SSL_SESSION_free)                                                                    \
    CALL(ssl, SSL_SESSION_set1_master_key)                                                         \
    CALL(ssl, SSL_SESSION_set_cipher)                                                              \
    CALL(ssl, SSL_SESSION_set_protocol_version)                                                    \
    CALL(crypto, BIO_meth_new)                                                                     \
    CALL(crypto, BIO_meth_free)                                                                    \
    CALL(crypto, BIO_meth_set_read)                                                                \
    CALL(crypto, BIO_meth_set_write)                                                               \
    CALL(crypto, BIO_meth_set_ctrl)                                                                \
    CALL(crypto, BIO_free)                                                                         \
    CALL(crypto, BIO_new)                                                                          \
    CALL(crypto, BIO_set_data)                                                                     \
    CALL(crypto, BIO_get_data)                                                                     \
    CALL(crypto, BIO_set_init)                                                                     \
    CALL(crypto, BIO_set_flags)                                                                    \
    CALL(crypto, BIO_clear_flags)                                                                  \
    CALL(crypto, ERR_peek_error)                                                                   \
    CALL(crypto, ERR_clear_error)                                                                  \
    CALL(crypto, ERR_reason_error_string)                                                          \
    CALL(crypto, EVP_sha256)                                                                       \
    CALL(crypto, HMAC)                                                                             \
    CALL(crypto, CRYPTO_memcmp)

#define LIGI_OPENSSL_MEMBER(library, name) __typeof__(name) *name;
typedef struct ligi_openssl {
    LIGI_OPENSSL_CALLS(LIGI_OPENSSL_MEMBER)
} ligi_openssl;

/* Loads libssl.so.3, once for the process; LIG_E_UNSUPPORTED with an error text if there is none.
 */
lig_status ligi_openssl_load(const ligi_openssl **openssl);
/* The table, for OpenSSL's callbacks, which run only after it was loaded. */
const ligi_openssl *ligi_openssl_loaded(void);

#endif
