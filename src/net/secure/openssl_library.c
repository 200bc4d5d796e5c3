#include "net/secure/openssl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

typedef enum ssl_library { FROM_ssl, FROM_crypto, LIBRARY_COUNT } ssl_library;

typedef struct ssl_symbol {
    ssl_library library;
    const char *name;
    size_t offset;
} ssl_symbol;

#define SYMBOL(library, name) {FROM_##library, #name, offsetof(ligi_openssl, name)},
static const ssl_symbol symbols[] = {LIGI_OPENSSL_CALLS(SYMBOL)};

/* A loaded library belongs to the process, and so do its addresses. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static ligi_openssl table;
static int is_loaded;

static lig_status find_symbols(void *const libraries[LIBRARY_COUNT],
                               const char *const names[LIBRARY_COUNT], ligi_openssl *into)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(libraries[symbols[i].library], symbols[i].name);
        if (address == NULL)
            return lig_fail(LIG_E_UNSUPPORTED, "%s lacks %s: a secret needs OpenSSL 3",
                            names[symbols[i].library], symbols[i].name);
        /* By the letter of C11 a function's address does not fit a void pointer; by POSIX it does.
         */
        memcpy((char *)into + symbols[i].offset, &address, sizeof address);
    }
    return LIG_OK;
}

static lig_status load(ligi_openssl *into)
{
    static const char *const names[LIBRARY_COUNT] = {"libssl.so.3", "libcrypto.so.3"};
    void *libraries[LIBRARY_COUNT];

    for (size_t i = 0; i < LIBRARY_COUNT; i++) {
        libraries[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (libraries[i] == NULL)
            return lig_fail(
                LIG_E_UNSUPPORTED,
                "a secret needs OpenSSL 3 (Debian: libssl3), which cannot be loaded: %s",
                dlerror());
    }
    LIG_TRY(find_symbols(libraries, names, into));
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
