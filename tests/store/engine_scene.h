/* The suites of the store on a storage service. A suite that is compiled with SCENE_ENGINE opens its
 * places on the service that LIGAMENT_TEST_STORE names: a URI in which the place takes the place of
 * '%'. Places are left there: the service ends with the tests. */
#ifndef ENGINE_SCENE_H
#define ENGINE_SCENE_H

#ifdef SCENE_ENGINE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/service_credentials.h"

/* Whether a URI is one that the service takes the place of. */
static inline int scene_is_place(const char *uri)
{
    return strncmp(uri, "mem:", 4) == 0 || strncmp(uri, "file:", 5) == 0;
}

/* "mem:" alone is another place each time. Memory is a process's own, folders are not. */
static inline void scene_place(const char *uri, char *text, size_t bytes)
{
    static int number;
    const char *pattern = getenv("LIGAMENT_TEST_STORE"), *query = strchr(uri, '?');
    const char *hole = pattern != NULL ? strchr(pattern, '%') : NULL;
    const int length = (int)(query != NULL ? query - uri : (long)strlen(uri));
    char name[160];

    if (hole == NULL || set_service_credentials() != LIG_OK) {
        fprintf(stderr, "LIGAMENT_TEST_STORE is not the URI of a service with a '%%' in it\n");
        exit(1);
    }
    if (uri[0] == 'f')
        snprintf(name, sizeof name, "%.*s", length, uri);
    else if (length == 4)
        snprintf(name, sizeof name, "mem-%ld-%d", (long)getpid(), number++);
    else
        snprintf(name, sizeof name, "mem-%ld-%.*s", (long)getpid(), length - 4, uri + 4);
    for (char *at = name; *at != '\0'; at++)
        if (*at == '/' || *at == ':')
            *at = '-';
    snprintf(text, bytes, "%.*s%s%s%s%s", (int)(hole - pattern), pattern, name, hole + 1,
             query != NULL ? "&" : "", query != NULL ? query + 1 : "");
}

#endif

#endif
