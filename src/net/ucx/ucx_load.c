#include "net/ucx/ucx_load.h"

#include "base/loaded_library.h"
#include "net/ucx/ucx_calls.h"

static const char *const ucp[] = {"libucp.so.0", NULL}, *const ucs[] = {"libucs.so.0", NULL};

#define SYMBOL(library, name) {library, #name, offsetof(ligi_ucx_calls, name)},
static const ligi_library_call symbols[] = {LIGI_UCX_CALLS(SYMBOL)};

lig_status ligi_ucx_load(const ligi_host *host, ligi_ucx_calls *calls)
{
    const char *missing = ligi_library_load(symbols, sizeof symbols / sizeof *symbols, calls);

    if (missing != NULL)
        return host->fail(
            LIG_E_UNSUPPORTED,
            "the ucx transport needs UCX 1.13 or newer (Debian: libucx0), which cannot be loaded: "
            "%s",
            missing);
    /* libucs installs handlers for SIGSEGV and other signals when loaded: they belong to the
     * program. */
    calls->ucs_debug_disable_signals();
    return LIG_OK;
}
