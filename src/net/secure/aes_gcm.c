#include "net/secure/aes_gcm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define DATA_MAX 16384
#define RECORD_MAX (DATA_MAX + 1 + LIGI_GCM_TAG)
#define HEADER 5
#define TYPE 23

/* --- an engine against OpenSSL --- */

typedef struct trial {
    const ligi_gcm *gcm, *oracle;
    void *seals, *opens, *right; /* two ciphers of the engine and the oracle's */
    uint8_t data[DATA_MAX], back[DATA_MAX];
    uint8_t made[RECORD_MAX], wanted[RECORD_MAX];
} trial;

static lig_status trial_keys(trial *self)
{
    static const uint8_t key[LIGI_GCM_KEY] = "a key for trials";

    LIG_TRY(self->gcm->ops->set_key(self->gcm, key, 1, &self->seals));
    LIG_TRY(self->gcm->ops->set_key(self->gcm, key, 0, &self->opens));
    return self->oracle->ops->set_key(self->oracle, key, 1, &self->right);
}

/* One record there and back, then with a changed bit in data, type or tag. */
static int trial_agrees(trial *self, size_t bytes)
{
    const uint8_t nonce[LIGI_GCM_NONCE] = {[0] = (uint8_t)bytes, [11] = (uint8_t)(bytes >> 8)};
    const uint8_t header[HEADER] = {TYPE, 3, 3, (uint8_t)(bytes >> 8), (uint8_t)bytes};
    const ligi_gcm *gcm = self->gcm, *oracle = self->oracle;
    size_t whole = bytes + 1 + LIGI_GCM_TAG;
    uint8_t type = 0;
    ligi_gcm_record record = {.nonce = nonce,
                              .header = header,
                              .header_bytes = HEADER,
                              .in = self->data,
                              .out = self->wanted,
                              .bytes = bytes};

    int well = oracle->ops->seal(oracle, self->right, &record, TYPE);
    record.out = self->made;
    well = well && gcm->ops->seal(gcm, self->seals, &record, TYPE) &&
           memcmp(self->made, self->wanted, whole) == 0;
    record.in = self->made;
    record.out = self->back;
    well = well && gcm->ops->open(gcm, self->opens, &record, &type) && type == TYPE &&
           memcmp(self->back, self->data, bytes) == 0;
    for (size_t at = 0; well && at < whole; at += 1 + whole / 4) {
        self->made[at] ^= 0x10;
        well = !gcm->ops->open(gcm, self->opens, &record, &type);
        self->made[at] ^= 0x10;
    }
    return well;
}

lig_status ligi_gcm_check(const ligi_gcm *gcm)
{
    static const size_t sizes[] = {0, 1, 14, 15, 16, 17, 100, 255, 256, 1000, 4099, DATA_MAX};
    const ligi_gcm oracle = {.ops = &ligi_gcm_openssl, .openssl = gcm->openssl};
    trial *self;

    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a trial of AES-GCM"));
    self->gcm = gcm;
    self->oracle = &oracle;
    for (size_t i = 0; i < DATA_MAX; i++)
        self->data[i] = (uint8_t)(i * 2654435761u >> 13);
    lig_status status = trial_keys(self);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == LIG_OK; i++)
        if (!trial_agrees(self, sizes[i]))
            status = lig_fail(LIG_E_UNSUPPORTED,
                              "%s does not compute the same AES-GCM as OpenSSL (a record of %zu "
                              "bytes), and is not used",
                              gcm->ops->name, sizes[i]);
    gcm->ops->release(gcm, self->seals);
    gcm->ops->release(gcm, self->opens);
    oracle.ops->release(&oracle, self->right);
    free(self);
    return status;
}

/* --- choosing --- */

void ligi_gcm_set_init(ligi_gcm_set *set, const ligi_openssl *openssl)
{
    *set = (ligi_gcm_set){.openssl = {.ops = &ligi_gcm_openssl, .openssl = openssl},
                          .ipsec_mb = {.openssl = openssl}};
}

static lig_status have_ipsec_mb(ligi_gcm_set *set)
{
    ligi_gcm made = {.ops = &ligi_gcm_ipsec_mb, .openssl = set->openssl.openssl};

    if (set->ipsec_mb.ops != NULL)
        return LIG_OK;
    LIG_TRY(ligi_ipsec_mb_load(&made.ipsec_mb));
    LIG_TRY(ligi_gcm_check(&made));
    set->ipsec_mb = made;
    return LIG_OK;
}

lig_status ligi_gcm_choose(ligi_gcm_set *set, const char *name, const ligi_gcm **gcm)
{
    int any = strcmp(name, "auto") == 0;

    if (!any && strcmp(name, "openssl") != 0 && strcmp(name, "ipsec-mb") != 0)
        return lig_fail(LIG_E_INVALID, "unknown crypto=%s: expected auto, openssl or ipsec-mb",
                        name);
    *gcm = &set->openssl;
    /* OpenSSL 3.1 and later are as fast, and then one library is enough. */
    if (strcmp(name, "openssl") == 0 || (any && set->openssl.openssl->OPENSSL_version_minor() > 0))
        return LIG_OK;
    if (any && set->in_vain)
        return LIG_OK;
    lig_status status = have_ipsec_mb(set);
    set->in_vain = status != LIG_OK;
    if (status == LIG_OK)
        *gcm = &set->ipsec_mb;
    return any ? LIG_OK : status;
}
