#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "net/secure/openssl_library.h"

typedef enum ssl_library { FROM_ssl, FROM_crypto, LIBRARY_COUNT } ssl_library;

typedef struct ssl_symbol {
    ssl_library library;
    const char *name;
    size_t offset;
} ssl_symbol;

#define SYMBOL(library, result, name, parameters)                                                  \
    {FROM_##library, #name, offsetof(ligi_openssl, name)},
static const ssl_symbol symbols[] = {LIGI_OPENSSL_CALLS(SYMBOL)};

lig_status ligi_openssl_load(ligi_openssl *openssl)
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
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(libraries[symbols[i].library], symbols[i].name);
        if (address == NULL)
            return lig_fail(LIG_E_UNSUPPORTED, "%s lacks %s: a secret needs OpenSSL 3",
                            names[symbols[i].library], symbols[i].name);
        /* A function's address does not fit a void pointer by the letter of C11; by POSIX it does.
         */
        memcpy((char *)openssl + symbols[i].offset, &address, sizeof address);
    }
    /* Exit handlers would free tables under threads that still run. */
    if (openssl->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return lig_fail(LIG_E_UNSUPPORTED, "OpenSSL cannot be initialised: check its openssl.cnf");
    return LIG_OK;
}

/* The table hangs on a handle, and a callback has none yet: it asks the loader again, once a
 * handshake. */
void *ligi_openssl_owner(const SSL *ssl)
{
    void *(*get)(const SSL *ssl, int index) = NULL;
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *address = library != NULL ? dlsym(library, "SSL_get_ex_data") : NULL;

    if (library != NULL)
        dlclose(library);
    if (address == NULL)
        return NULL;
    memcpy(&get, &address, sizeof get);
    return get(ssl, 0);
}
