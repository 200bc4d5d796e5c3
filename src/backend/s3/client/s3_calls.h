/* The calls of libcurl and libcrypto in use: their headers are needed at build time, the libraries
 * are loaded when s3: is first used. */
#ifndef LIGI_S3_CALLS_H
#define LIGI_S3_CALLS_H

#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

/* libcurl's headers turn these into macros that check the types of arguments. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define LIGI_S3_CALLS(CALL)                                                                        \
    CALL(curl, curl_global_init)                                                                   \
    CALL(curl, curl_version_info)                                                                  \
    CALL(curl, curl_easy_init)                                                                     \
    CALL(curl, curl_easy_setopt)                                                                   \
    CALL(curl, curl_easy_getinfo)                                                                  \
    CALL(curl, curl_easy_reset)                                                                    \
    CALL(curl, curl_easy_cleanup)                                                                  \
    CALL(curl, curl_easy_strerror)                                                                 \
    CALL(curl, curl_slist_append)                                                                  \
    CALL(curl, curl_slist_free_all)                                                                \
    CALL(curl, curl_multi_init)                                                                    \
    CALL(curl, curl_multi_setopt)                                                                  \
    CALL(curl, curl_multi_add_handle)                                                              \
    CALL(curl, curl_multi_remove_handle)                                                           \
    CALL(curl, curl_multi_perform)                                                                 \
    CALL(curl, curl_multi_info_read)                                                               \
    CALL(curl, curl_multi_poll)                                                                    \
    CALL(curl, curl_multi_wakeup)                                                                  \
    CALL(curl, curl_multi_cleanup)                                                                 \
    CALL(crypto, EVP_sha256)                                                                       \
    CALL(crypto, EVP_Digest)                                                                       \
    CALL(crypto, HMAC)

#define LIGI_S3_MEMBER(library, name) __typeof__(name) *name;
typedef struct ligi_s3_calls {
    LIGI_S3_CALLS(LIGI_S3_MEMBER)
} ligi_s3_calls;

#endif
