#include "backend/rados/rados_calls.h"

#include <dlfcn.h>
#include <string.h>

typedef struct rados_symbol {
    const char *name;
    size_t offset;
} rados_symbol;

#define SYMBOL(name) {#name, offsetof(ligi_rados_calls, name)},
static const rados_symbol symbols[] = {LIGI_RADOS_CALLS(SYMBOL)};

lig_status ligi_rados_calls_load(const ligi_engine_host *host, ligi_rados_calls *calls)
{
    void *library = dlopen("librados.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (library == NULL)
        return host->fail(LIG_E_UNSUPPORTED,
                          "rados:// needs librados 16 or newer, which cannot be loaded: %s "
                          "(apt-get install librados2)",
                          dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL)
            return host->fail(LIG_E_UNSUPPORTED,
                              "librados.so.2 lacks %s: librados 16 or newer is needed",
                              symbols[i].name);
        memcpy((char *)calls + symbols[i].offset, &address, sizeof address);
    }
    return LIG_OK;
}
