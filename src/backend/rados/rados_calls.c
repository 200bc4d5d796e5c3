#include "backend/rados/rados_calls.h"

#include "base/loaded_library.h"

static const char *const librados[] = {"librados.so.2", NULL};

#define SYMBOL(name) {librados, #name, offsetof(ligi_rados_calls, name)},
static const ligi_library_call symbols[] = {LIGI_RADOS_CALLS(SYMBOL)};

lig_status ligi_rados_calls_load(const ligi_engine_host *host, ligi_rados_calls *calls)
{
    const char *missing = ligi_library_load(symbols, sizeof symbols / sizeof *symbols, calls);

    if (missing == NULL)
        return LIG_OK;
    return host->fail(LIG_E_UNSUPPORTED,
                      "rados:// needs librados 16 or newer (Debian: librados2), which cannot be "
                      "loaded: %s",
                      missing);
}
