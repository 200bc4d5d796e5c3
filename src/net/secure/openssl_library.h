/* The part of OpenSSL 3 that is used here, declared by hand: the library is loaded when a secret is
 * first given, so neither its headers nor the library itself are needed before. Names, types and
 * values are those of its public headers, which are stable for the whole of libssl.so.3. */
#ifndef LIGI_OPENSSL_LIBRARY_H
#define LIGI_OPENSSL_LIBRARY_H

#include <ligament/base.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct ssl_session_st SSL_SESSION;
typedef struct ssl_cipher_st SSL_CIPHER;
typedef struct bio_st BIO;
typedef struct evp_md_st EVP_MD;
typedef struct evp_cipher_st EVP_CIPHER;
typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;

#define OPENSSL_INIT_NO_ATEXIT 0x00080000L
#define SSL_ERROR_WANT_READ 2
#define SSL_ERROR_WANT_WRITE 3
#define SSL_OP_NO_TICKET 0x00004000UL
#define SSL_OP_NO_COMPRESSION 0x00020000UL
#define SSL_OP_NO_RENEGOTIATION 0x40000000UL
#define SSL_CTRL_SET_SESS_CACHE_MODE 44
#define SSL_CTRL_SET_GROUPS_LIST 92
#define SSL_CTRL_SET_MIN_PROTO_VERSION 123
#define SSL_CTRL_SET_MAX_PROTO_VERSION 124
#define SSL_VERIFY_PEER 1
#define TLS1_3_VERSION 0x0304
#define EVP_CTRL_AEAD_GET_TAG 0x10
#define EVP_CTRL_AEAD_SET_TAG 0x11

typedef int (*ligi_psk_find)(SSL *ssl, const unsigned char *identity, size_t bytes,
                             SSL_SESSION **session);
typedef int (*ligi_psk_use)(SSL *ssl, const EVP_MD *md, const unsigned char **identity,
                            size_t *bytes, SSL_SESSION **session);

/* CALL(library, result, name, parameters) */
#define LIGI_OPENSSL_CALLS(CALL)                                                                   \
    CALL(ssl, int, OPENSSL_init_ssl, (uint64_t options, const void *settings))                     \
    CALL(ssl, const SSL_METHOD *, TLS_method, (void))                                              \
    CALL(ssl, SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *method))                                  \
    CALL(ssl, void, SSL_CTX_free, (SSL_CTX * context))                                             \
    CALL(ssl, long, SSL_CTX_ctrl, (SSL_CTX * context, int command, long value, void *more))        \
    CALL(ssl, uint64_t, SSL_CTX_set_options, (SSL_CTX * context, uint64_t options))                \
    CALL(ssl, int, SSL_CTX_set_ciphersuites, (SSL_CTX * context, const char *names))               \
    CALL(ssl, int, SSL_CTX_set_num_tickets, (SSL_CTX * context, size_t count))                     \
    CALL(ssl, void, SSL_set_verify, (SSL * ssl, int mode, void *check))                            \
    CALL(ssl, void, SSL_CTX_set_psk_find_session_callback,                                         \
         (SSL_CTX * context, ligi_psk_find find))                                                  \
    CALL(ssl, void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX * context, ligi_psk_use use))   \
    CALL(ssl, void, SSL_CTX_set_keylog_callback,                                                   \
         (SSL_CTX * context, void (*tell)(const SSL *ssl, const char *line)))                      \
    CALL(ssl, SSL *, SSL_new, (SSL_CTX * context))                                                 \
    CALL(ssl, void, SSL_free, (SSL * ssl))                                                         \
    CALL(ssl, void, SSL_set_bio, (SSL * ssl, BIO * in, BIO * out))                                 \
    CALL(ssl, void, SSL_set_accept_state, (SSL * ssl))                                             \
    CALL(ssl, void, SSL_set_connect_state, (SSL * ssl))                                            \
    CALL(ssl, int, SSL_set_ex_data, (SSL * ssl, int index, void *data))                            \
    CALL(ssl, int, SSL_do_handshake, (SSL * ssl))                                                  \
    CALL(ssl, int, SSL_get_error, (const SSL *ssl, int result))                                    \
    CALL(ssl, int, SSL_session_reused, (const SSL *ssl))                                           \
    CALL(ssl, int, SSL_version, (const SSL *ssl))                                                  \
    CALL(ssl, const SSL_CIPHER *, SSL_CIPHER_find, (SSL * ssl, const unsigned char *id))           \
    CALL(ssl, SSL_SESSION *, SSL_SESSION_new, (void))                                              \
    CALL(ssl, void, SSL_SESSION_free, (SSL_SESSION * session))                                     \
    CALL(ssl, int, SSL_SESSION_set1_master_key,                                                    \
         (SSL_SESSION * session, const unsigned char *key, size_t bytes))                          \
    CALL(ssl, int, SSL_SESSION_set_cipher, (SSL_SESSION * session, const SSL_CIPHER *cipher))      \
    CALL(ssl, int, SSL_SESSION_set_protocol_version, (SSL_SESSION * session, int version))         \
    CALL(crypto, int, BIO_new_bio_pair, (BIO * *a, size_t a_bytes, BIO **b, size_t b_bytes))       \
    CALL(crypto, int, BIO_free, (BIO * bio))                                                       \
    CALL(crypto, int, BIO_nread0, (BIO * bio, char **data))                                        \
    CALL(crypto, int, BIO_nread, (BIO * bio, char **data, int bytes))                              \
    CALL(crypto, int, BIO_nwrite0, (BIO * bio, char **data))                                       \
    CALL(crypto, int, BIO_nwrite, (BIO * bio, char **data, int bytes))                             \
    CALL(crypto, unsigned, OPENSSL_version_minor, (void))                                          \
    CALL(crypto, unsigned long, ERR_peek_error, (void))                                            \
    CALL(crypto, void, ERR_clear_error, (void))                                                    \
    CALL(crypto, const char *, ERR_reason_error_string, (unsigned long number))                    \
    CALL(crypto, EVP_CIPHER *, EVP_CIPHER_fetch,                                                   \
         (void *library, const char *name, const char *properties))                                \
    CALL(crypto, void, EVP_CIPHER_free, (EVP_CIPHER * cipher))                                     \
    CALL(crypto, EVP_CIPHER_CTX *, EVP_CIPHER_CTX_new, (void))                                     \
    CALL(crypto, void, EVP_CIPHER_CTX_free, (EVP_CIPHER_CTX * context))                            \
    CALL(crypto, int, EVP_CIPHER_CTX_ctrl,                                                         \
         (EVP_CIPHER_CTX * context, int command, int value, void *more))                           \
    CALL(crypto, int, EVP_CipherInit_ex,                                                           \
         (EVP_CIPHER_CTX * context, const EVP_CIPHER *cipher, void *engine,                        \
          const unsigned char *key, const unsigned char *iv, int encrypt))                         \
    CALL(crypto, int, EVP_CipherUpdate,                                                            \
         (EVP_CIPHER_CTX * context, unsigned char *out, int *out_bytes, const unsigned char *in,   \
          int bytes))                                                                              \
    CALL(crypto, int, EVP_CipherFinal_ex,                                                          \
         (EVP_CIPHER_CTX * context, unsigned char *out, int *out_bytes))                           \
    CALL(crypto, const EVP_MD *, EVP_sha256, (void))                                               \
    CALL(crypto, unsigned char *, HMAC,                                                            \
         (const EVP_MD *md, const void *key, int key_bytes, const unsigned char *data,             \
          size_t bytes, unsigned char *out, unsigned *out_bytes))                                  \
    CALL(crypto, int, CRYPTO_memcmp, (const void *a, const void *b, size_t bytes))

#define LIGI_OPENSSL_MEMBER(library, result, name, parameters) result(*name) parameters;
typedef struct ligi_openssl {
    LIGI_OPENSSL_CALLS(LIGI_OPENSSL_MEMBER)
} ligi_openssl;

/* Loads libssl.so.3 and fills the table; LIG_E_UNSUPPORTED with an error text if there is none.
 * What is loaded stays for the life of the process. */
lig_status ligi_openssl_load(ligi_openssl *openssl);
/* What SSL_set_ex_data(ssl, 0, ...) put there, for callbacks, which know nothing but their
 * connection. */
void *ligi_openssl_owner(const SSL *ssl);

#endif
