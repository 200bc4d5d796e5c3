#include "base/loaded_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define HOW (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static void *open_beside(const char *name)
{
    static const char here_in[] = ""; /* an address in this library */
    Dl_info here;
    char path[PATH_MAX];

    if (dladdr(here_in, &here) == 0 || here.dli_fname == NULL)
        return NULL;
    const char *end = strrchr(here.dli_fname, '/');
    int folder = end != NULL ? (int)(end - here.dli_fname) : 0;
    if (end == NULL ||
        snprintf(path, sizeof path, "%.*s/%s", folder, here.dli_fname, name) >= (int)sizeof path)
        return NULL;
    return dlopen(path, HOW);
}

void *ligi_library_beside(const char *name)
{
    void *library = open_beside(name);

    return library != NULL ? library : dlopen(name, HOW);
}

const char *ligi_library_load(const ligi_library_call *calls, size_t count, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *library = NULL;
        for (size_t j = 0; library == NULL && calls[i].library[j] != NULL; j++)
            library = dlopen(calls[i].library[j], HOW);
        void *address = library == NULL ? NULL : dlsym(library, calls[i].name);
        if (address == NULL)
            return dlerror();
        /* In C11 a function's address need not fit a void pointer; in POSIX it does.
         */
        memcpy((char *)table + calls[i].offset, &address, sizeof address);
    }
    return NULL;
}
