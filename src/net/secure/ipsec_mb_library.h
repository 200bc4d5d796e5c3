/* The part of Intel's multi-buffer crypto library (libIPSec_MB.so.1, versions 1.0 to 1.5) that is
 * used here, declared by hand as OpenSSL's is: AES-128-GCM in pieces, for processors with VAES and
 * AVX-512. */
#ifndef LIGI_IPSEC_MB_LIBRARY_H
#define LIGI_IPSEC_MB_LIBRARY_H

#include <ligament/base.h>

/* The library says neither how large a key and a context are nor that they stay so: a key took 1008
 * bytes until 1.3 and takes 1264 since, a context 88. Both begin at 64 bytes. */
#define LIGI_IPSEC_MB_KEY 4096
#define LIGI_IPSEC_MB_CONTEXT 512
#define LIGI_IPSEC_MB_ALIGN 64

/* CALL(member, name in the library behind aes_gcm_, parameters) */
#define LIGI_IPSEC_MB_CALLS(CALL)                                                                  \
    CALL(pre, "pre_128", (const void *bytes, void *key))                                           \
    CALL(init, "init_128",                                                                         \
         (const void *key, void *context, const uint8_t *nonce, const uint8_t *header,             \
          uint64_t header_bytes))                                                                  \
    CALL(encrypt, "enc_128_update",                                                                \
         (const void *key, void *context, uint8_t *out, const uint8_t *in, uint64_t bytes))        \
    CALL(encrypt_end, "enc_128_finalize",                                                          \
         (const void *key, void *context, uint8_t *tag, uint64_t tag_bytes))                       \
    CALL(decrypt, "dec_128_update",                                                                \
         (const void *key, void *context, uint8_t *out, const uint8_t *in, uint64_t bytes))        \
    CALL(decrypt_end, "dec_128_finalize",                                                          \
         (const void *key, void *context, uint8_t *tag, uint64_t tag_bytes))

#define LIGI_IPSEC_MB_MEMBER(member, name, parameters) void(*member) parameters;
typedef struct ligi_ipsec_mb {
    LIGI_IPSEC_MB_CALLS(LIGI_IPSEC_MB_MEMBER)
} ligi_ipsec_mb;

/* Loads the library and fills the table; LIG_E_UNSUPPORTED with an error text if there is none, or
 * where the processor has not what it takes. What is loaded stays for the life of the process. */
lig_status ligi_ipsec_mb_load(ligi_ipsec_mb *calls);

#endif
