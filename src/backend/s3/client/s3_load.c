#include "backend/s3/client/s3_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef enum s3_library { FROM_curl, FROM_crypto, LIBRARY_COUNT } s3_library;

typedef struct s3_symbol {
    s3_library library;
    const char *name;
    size_t offset;
} s3_symbol;

#define SYMBOL(library, name) {FROM_##library, #name, offsetof(ligi_s3_calls, name)},
static const s3_symbol symbols[] = {LIGI_S3_CALLS(SYMBOL)};

/* A loaded library belongs to the process, and so do its addresses. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static ligi_s3_calls table;
static int is_loaded;

/* Names in order of preference: the same library under the names of distributions. */
static void *open_library(s3_library library)
{
    static const char *const names[LIBRARY_COUNT][4] = {
        {"libcurl.so.4", "libcurl-gnutls.so.4", NULL},
        {"libcrypto.so.3", "libcrypto.so.1.1", NULL}};

    for (size_t i = 0; names[library][i] != NULL; i++) {
        void *opened = dlopen(names[library][i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (opened != NULL)
            return opened;
    }
    return NULL;
}

static lig_status load(const ligi_engine_host *host, ligi_s3_calls *calls)
{
    static const char *const packages[LIBRARY_COUNT] = {"libcurl 7.68 or newer (Debian: libcurl4)",
                                                        "OpenSSL (Debian: libssl3)"};
    void *libraries[LIBRARY_COUNT];

    for (s3_library i = 0; i < LIBRARY_COUNT; i++) {
        libraries[i] = open_library(i);
        if (libraries[i] == NULL)
            return host->fail(LIG_E_UNSUPPORTED, "s3: needs %s, which cannot be loaded: %s",
                              packages[i], dlerror());
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(libraries[symbols[i].library], symbols[i].name);
        if (address == NULL)
            return host->fail(LIG_E_UNSUPPORTED, "s3: needs %s: the installed one lacks %s",
                              packages[symbols[i].library], symbols[i].name);
        memcpy((char *)calls + symbols[i].offset, &address, sizeof address);
    }
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
