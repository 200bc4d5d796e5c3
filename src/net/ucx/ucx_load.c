#include "net/ucx/ucx_load.h"

#include <dlfcn.h>
#include <string.h>

#include "net/ucx/ucx_calls.h"

typedef enum ucx_library { FROM_ucp, FROM_ucs, LIBRARY_COUNT } ucx_library;

typedef struct ucx_symbol {
    ucx_library library;
    const char *name;
    size_t offset;
} ucx_symbol;

#define SYMBOL(library, name) {FROM_##library, #name, offsetof(ligi_ucx_calls, name)},
static const ucx_symbol symbols[] = {LIGI_UCX_CALLS(SYMBOL)};

lig_status ligi_ucx_load(const ligi_host *host, ligi_ucx_calls *calls)
{
    static const char *const names[LIBRARY_COUNT] = {"libucp.so.0", "libucs.so.0"};
    void *libraries[LIBRARY_COUNT];

    for (size_t i = 0; i < LIBRARY_COUNT; i++) {
        libraries[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (libraries[i] == NULL)
            return host->fail(LIG_E_UNSUPPORTED,
                              "the ucx transport needs UCX 1.13 or newer (Debian: libucx0), which "
                              "cannot be loaded: %s",
                              dlerror());
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(libraries[symbols[i].library], symbols[i].name);
        if (address == NULL)
            return host->fail(LIG_E_UNSUPPORTED, "%s lacks %s: UCX 1.13 or newer is needed",
                              names[symbols[i].library], symbols[i].name);
        memcpy((char *)calls + symbols[i].offset, &address, sizeof address);
    }
    /* libucs installs handlers for SIGSEGV and other signals when loaded: they belong to the
     * program. */
    calls->ucs_debug_disable_signals();
    return LIG_OK;
}
