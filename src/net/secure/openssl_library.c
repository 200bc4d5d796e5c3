#include "net/secure/openssl_library.h"

#include <pthread.h>

#include "base/loaded_library.h"

static const char *const ssl[] = {"libssl.so.3", NULL}, *const crypto[] = {"libcrypto.so.3", NULL};

#define SYMBOL(library, name) {library, #name, offsetof(ligi_openssl, name)},
static const ligi_library_call symbols[] = {LIGI_OPENSSL_CALLS(SYMBOL)};

/* A loaded library belongs to the process, and so do its addresses. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static ligi_openssl table;
static int is_loaded;

static lig_status load(ligi_openssl *into)
{
    const char *missing = ligi_library_load(symbols, sizeof symbols / sizeof *symbols, into);

    if (missing != NULL)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "a secret needs OpenSSL 3 (Debian: libssl3), which cannot be loaded: %s",
                        missing);
    /* Exit handlers would free tables under threads that still run. */
    if (into->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return lig_fail(LIG_E_UNSUPPORTED, "OpenSSL cannot be initialised: check its openssl.cnf");
    return LIG_OK;
}

lig_status ligi_openssl_load(const ligi_openssl **openssl)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&load_lock);
    if (!is_loaded)
        status = load(&table);
    is_loaded |= status == LIG_OK;
    pthread_mutex_unlock(&load_lock);
    *openssl = &table;
    return status;
}

const ligi_openssl *ligi_openssl_loaded(void)
{
    return &table;
}
