/* lig_served_uri: the URI of a store that is named the way servers are. */
#include "base/codec.h"
#include "base/error.h"

#include <ligament/backend.h>
#include <ligament/serve.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct named {
    char *text;        /* without the query */
    const char *query; /* "?key=..." or "" */
} named;

static lig_status split(const char *text, named *out)
{
    const char *query = strrchr(text, '?');
    if (query == NULL || strchr(query, '=') == NULL)
        query = text + strlen(text);
    LIG_TRY(ligi_strdup(&out->text, text));
    out->text[query - text] = '\0';
    out->query = query;
    return LIG_OK;
}

/* "mem:7" is a store in memory, whose scheme looks like a host. */
static int is_scheme(const char *text, size_t bytes)
{
    char name[64];
    if (bytes >= sizeof name)
        return 0;
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    return lig_backend_find(name) != NULL;
}

static int is_address(const char *text)
{
    struct stat found;
    const char *port = strrchr(text, ':');
    if (port == NULL || port == text || strchr(text, '/') || port[1] == '\0')
        return 0;
    return strspn(port + 1, "0123456789") == strlen(port + 1) &&
           !is_scheme(text, (size_t)(port - text)) && stat(text, &found) != 0;
}

static int is_file(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

/* The file need not exist yet, its folder must. */
static lig_status absolute(const char *path, char full[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int bytes = snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1,
                         slash ? path : ".");
    if (bytes == 0)
        folder[0] = '/', folder[1] = '\0';
    if (bytes < 0 || (size_t)bytes >= sizeof folder || realpath(folder, full) == NULL)
        return lig_fail(LIG_E_NOTFOUND, "address file %s: there is no such folder", path);
    size_t used = strcmp(full, "/") == 0 ? 0 : strlen(full);
    if (used + strlen(name) + 2 > PATH_MAX)
        return lig_fail(LIG_E_LIMIT, "the path of an address file is too long: %s", path);
    full[used] = '/';
    memcpy(full + used + 1, name, strlen(name) + 1);
    return LIG_OK;
}

/* Characters with a meaning in a URI are escaped. */
static lig_status put_file(ligi_writer *uri, const char *path)
{
    char full[PATH_MAX];
    LIG_TRY(absolute(path, full));
    ligi_put_bytes(uri, "ligament://@", sizeof "ligament://@" - 1);
    for (const char *c = full; *c; c++) {
        if (*c == '%' || *c == '?')
            ligi_put_bytes(uri, *c == '%' ? "%25" : "%3F", 3);
        else
            ligi_put_bytes(uri, c, 1);
    }
    return LIG_OK;
}

static lig_status put_uri(ligi_writer *uri, const named *given)
{
    if (given->text[0] == '@')
        LIG_TRY(put_file(uri, given->text + 1));
    else if (is_file(given->text))
        LIG_TRY(put_file(uri, given->text));
    else {
        if (is_address(given->text))
            ligi_put_bytes(uri, "ligament://", sizeof "ligament://" - 1);
        ligi_put_bytes(uri, given->text, strlen(given->text));
    }
    ligi_put_bytes(uri, given->query, strlen(given->query) + 1);
    return uri->status;
}

lig_status lig_served_uri(const char *text, char *uri, size_t uri_bytes)
{
    named given;
    ligi_writer made = {0};
    LIG_TRY(split(text, &given));
    lig_status status = put_uri(&made, &given);
    if (status == LIG_OK && made.bytes > uri_bytes)
        status = lig_fail(LIG_E_LIMIT, "the name of a store is too long: %s", text);
    if (status == LIG_OK)
        memcpy(uri, made.data, made.bytes);
    ligi_writer_fini(&made);
    free(given.text);
    return status;
}
