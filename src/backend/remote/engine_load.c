#include "backend/remote/engine_load.h"

#include "backend/credentials.h"
#include "base/boot.h"
#include "base/error.h"
#include "base/loaded_library.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

static void host_log(int level, const char *format, ...) LIG_PRINTF(2, 3);
static void host_log(int level, const char *format, ...)
{
    char text[LIGI_ERROR_TEXT_BYTES];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    ligi_log((lig_log_level)level, "%s", text);
}

const ligi_engine_host ligi_engine_host_table = {
    .abi = LIGI_ENGINE_ABI,
    .size = sizeof(ligi_engine_host),
    .fail = lig_fail,
    .error_text = lig_error_text,
    .log = host_log,
    .random = ligi_random,
    .credential = ligi_credential_get,
};

lig_status ligi_engine_load(const char *scheme, const char *package, const ligi_engine_ops **ops)
{
    char name[64];

    snprintf(name, sizeof name, "libligament_%s.so", scheme);
    void *library = ligi_library_beside(name);
    if (library == NULL)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s: stores are not available: %s (apt install %s, and use a build of this "
                        "library that supports it)",
                        scheme, dlerror(), package);
    const ligi_engine_ops *found = dlsym(library, "lig_engine_entry");
    if (found == NULL || found->abi != LIGI_ENGINE_ABI || found->size != sizeof *found)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s does not match this library: install both from one build", name);
    *ops = found;
    return LIG_OK;
}
