/* AES-128-GCM, which protects the records of TLS, by a library that is loaded at run time: an
 * engine. Both ends of a connection may have different ones, since all compute the same. */
#ifndef LIGI_AES_GCM_H
#define LIGI_AES_GCM_H

#include "net/secure/ipsec_mb_library.h"
#include "net/secure/openssl_library.h"

#define LIGI_GCM_KEY 16
#define LIGI_GCM_NONCE 12
#define LIGI_GCM_TAG 16

/* One record: `bytes` of data and one byte behind them, the type, become as many encrypted bytes
 * and a tag, and back. The header is proved and not encrypted. `in` and `out` do not overlap. */
typedef struct ligi_gcm_record {
    const uint8_t *nonce; /* LIGI_GCM_NONCE; never twice with one key */
    const uint8_t *header;
    size_t header_bytes;
    const uint8_t *in;
    uint8_t *out;
    size_t bytes;
} ligi_gcm_record;

typedef struct ligi_gcm ligi_gcm;

typedef struct ligi_gcm_ops {
    const char *name;
    /* Makes *cipher, which is NULL at first, or gives it another key. It seals, or it opens. */
    lig_status (*set_key)(const ligi_gcm *gcm, const uint8_t key[LIGI_GCM_KEY], int seals,
                          void **cipher);
    /* Writes bytes + 1 + LIGI_GCM_TAG to `out`. Returns 0 when the library fails. */
    int (*seal)(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t type);
    /* Reads bytes + 1 + LIGI_GCM_TAG from `in`. Returns 0 when the tag is not the right one; what
     * was written to `out` is nothing then. */
    int (*open)(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t *type);
    void (*release)(const ligi_gcm *gcm, void *cipher); /* wipes; NULL is fine */
} ligi_gcm_ops;

struct ligi_gcm {
    const ligi_gcm_ops *ops;
    const ligi_openssl *openssl; /* borrowed */
    ligi_ipsec_mb ipsec_mb;      /* of that engine alone */
};

extern const ligi_gcm_ops ligi_gcm_openssl, ligi_gcm_ipsec_mb;

/* Whether the engine makes the records that OpenSSL makes, byte for byte, opens them, and refuses
 * one with a changed bit; LIG_E_UNSUPPORTED with a sentence when not. */
lig_status ligi_gcm_check(const ligi_gcm *gcm);

/* The engines of a process; embedded. */
typedef struct ligi_gcm_set {
    ligi_gcm openssl;
    ligi_gcm ipsec_mb; /* loaded and checked when first wanted; without ops until then */
    int in_vain;       /* the last look for ipsec-mb: auto does not look at every connection */
} ligi_gcm_set;

/* Borrows `openssl`. Nothing has to be undone. */
void ligi_gcm_set_init(ligi_gcm_set *set, const ligi_openssl *openssl);
/* "openssl", "ipsec-mb", or "auto": ipsec-mb where it can be had and OpenSSL is 3.0, which does not
 * use the processor's wide instructions itself. LIG_E_INVALID for another name, LIG_E_UNSUPPORTED
 * when ipsec-mb was asked for by name and cannot be had. *gcm is the set's. One thread at a time.
 */
lig_status ligi_gcm_choose(ligi_gcm_set *set, const char *name, const ligi_gcm **gcm);

#endif
