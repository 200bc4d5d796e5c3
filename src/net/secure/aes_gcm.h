/* AES-128-GCM for TLS records, by a library that is loaded at run time: an engine. The two ends of
 * a connection may use different ones, since all compute the same. */
#ifndef LIGI_AES_GCM_H
#define LIGI_AES_GCM_H

#include "net/secure/ipsec_mb_library.h"
#include "net/secure/openssl_library.h"

#define LIGI_GCM_KEY 16
#define LIGI_GCM_NONCE 12
#define LIGI_GCM_TAG 16

/* One record: `bytes` of data and the type byte behind them become as many encrypted bytes and a
 * tag, and back. The header is authenticated, not encrypted. `in` and `out` do not overlap. */
typedef struct ligi_gcm_record {
    const uint8_t *nonce; /* LIGI_GCM_NONCE; never reused with one key */
    const uint8_t *header;
    size_t header_bytes;
    const uint8_t *in;
    uint8_t *out;
    size_t bytes;
} ligi_gcm_record;

typedef struct ligi_gcm ligi_gcm;

typedef struct ligi_gcm_ops {
    const char *name;
    /* Creates *cipher, initially NULL, or gives it another key. It seals, or it opens. */
    lig_status (*set_key)(const ligi_gcm *gcm, const uint8_t key[LIGI_GCM_KEY], int seals,
                          void **cipher);
    /* Writes bytes + 1 + LIGI_GCM_TAG to `out`. Returns 0 if the library fails. */
    int (*seal)(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t type);
    /* Reads bytes + 1 + LIGI_GCM_TAG from `in`. Returns 0 if the tag is wrong; the contents of
     * `out` are then undefined. */
    int (*open)(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record, uint8_t *type);
    void (*release)(const ligi_gcm *gcm, void *cipher); /* wipes; NULL is valid */
} ligi_gcm_ops;

struct ligi_gcm {
    const ligi_gcm_ops *ops;
    const ligi_openssl *openssl; /* borrowed */
    ligi_ipsec_mb ipsec_mb;      /* of that engine alone */
};

extern const ligi_gcm_ops ligi_gcm_openssl, ligi_gcm_ipsec_mb;

/* Checks that the engine produces the same records as OpenSSL, byte for byte, opens them, and
 * rejects one with a changed bit; LIG_E_UNSUPPORTED with an error text if not. */
lig_status ligi_gcm_check(const ligi_gcm *gcm);

/* The engines of a process; embedded. */
typedef struct ligi_gcm_set {
    ligi_gcm openssl;
    ligi_gcm ipsec_mb; /* loaded and checked at first use; without ops until then */
    int in_vain;       /* the last attempt to load ipsec-mb: auto does not retry at every
                        * connection */
} ligi_gcm_set;

/* Borrows `openssl`. Needs no cleanup. */
void ligi_gcm_set_init(ligi_gcm_set *set, const ligi_openssl *openssl);
/* "openssl", "ipsec-mb", or "auto": ipsec-mb if it is available and OpenSSL is 3.0, which does not
 * use the processor's wide instructions. LIG_E_INVALID for another name, LIG_E_UNSUPPORTED if
 * ipsec-mb was requested by name and is not available. *gcm belongs to the set. One thread at a
 * time. */
lig_status ligi_gcm_choose(ligi_gcm_set *set, const char *name, const ligi_gcm **gcm);

#endif
