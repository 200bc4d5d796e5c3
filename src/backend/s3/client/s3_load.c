#include "backend/s3/client/s3_load.h"

#include <pthread.h>

#include "base/loaded_library.h"

static const char *const curl[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
static const char *const crypto[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};

#define SYMBOL(library, name) {library, #name, offsetof(ligi_s3_calls, name)},
static const ligi_library_call symbols[] = {LIGI_S3_CALLS(SYMBOL)};

/* A loaded library belongs to the process, and so do its addresses. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static ligi_s3_calls table;
static int is_loaded;

static lig_status load(const ligi_engine_host *host, ligi_s3_calls *calls)
{
    const char *missing = ligi_library_load(symbols, sizeof symbols / sizeof *symbols, calls);

    if (missing != NULL)
        return host->fail(LIG_E_UNSUPPORTED,
                          "s3:// needs libcurl 7.68 or newer (Debian: libcurl4) and OpenSSL "
                          "(Debian: libssl3), which cannot be loaded: %s",
                          missing);
    if (calls->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return host->fail(LIG_E_UNSUPPORTED, "s3: libcurl cannot be initialised");
    return LIG_OK;
}

lig_status ligi_s3_load(const ligi_engine_host *host, const ligi_s3_calls **calls)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&load_lock);
    if (!is_loaded)
        status = load(host, &table);
    is_loaded |= status == LIG_OK;
    pthread_mutex_unlock(&load_lock);
    *calls = &table;
    return status;
}

static int sha256(void *context, const void *data, size_t bytes, uint8_t out[LIGI_S3_SHA256_BYTES])
{
    const ligi_s3_calls *calls = context;
    unsigned out_bytes = LIGI_S3_SHA256_BYTES;

    return calls->EVP_Digest(data, bytes, out, &out_bytes, calls->EVP_sha256(), NULL) == 1;
}

static int hmac(void *context, const ligi_s3_bytes *key, const ligi_s3_bytes *data,
                uint8_t out[LIGI_S3_SHA256_BYTES])
{
    const ligi_s3_calls *calls = context;
    unsigned out_bytes = LIGI_S3_SHA256_BYTES;

    return calls->HMAC(calls->EVP_sha256(), key->data, (int)key->bytes, data->data, data->bytes,
                       out, &out_bytes) != NULL;
}

ligi_s3_digest ligi_s3_digests(const ligi_s3_calls *calls)
{
    return (ligi_s3_digest){sha256, hmac, (void *)calls};
}
