#include "base/sibling_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

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
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

void *ligi_sibling_open(const char *name)
{
    void *library = open_beside(name);

    return library != NULL ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}
