#include "base/uri/uri.h"

#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the scheme with its colon, 0 if the text is a path. At least two letters: one may be a
 * drive. */
static size_t scheme_bytes(const char *text)
{
    if (!isalpha((unsigned char)text[0]))
        return 0;
    size_t i = 1;
    while (isalnum((unsigned char)text[i]) || (text[i] && strchr("+._-", text[i])))
        i++;
    return i >= 2 && text[i] == ':' ? i + 1 : 0;
}

/* The '?' that begins the query: the first one in a URI, the last one followed by "key=" in a path
 * (a path may contain '?'). */
static const char *find_query(const char *text, int is_path)
{
    if (!is_path)
        return strchr(text, '?');
    const char *mark = strrchr(text, '?');
    if (mark == NULL)
        return NULL;
    size_t key = strspn(mark + 1, "abcdefghijklmnopqrstuvwxyz_");
    return key && mark[1 + key] == '=' ? mark : NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A copy of text[0..bytes), with %xx decoded if `decode`. %00 is rejected: it would truncate the
 * string. */
static lig_status decoded(char **out, const char *text, size_t bytes, int decode)
{
    char *copy;
    LIG_TRY(ligi_alloc(&copy, bytes + 1, "a URI"));
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (!decode || text[i] != '%') {
            copy[used++] = text[i];
            continue;
        }
        int high = i + 2 < bytes ? hex_digit(text[i + 1]) : -1;
        int low = i + 2 < bytes ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0 || (high == 0 && low == 0)) {
            free(copy);
            return lig_fail(LIG_E_INVALID, "invalid percent-encoding '%.*s' in a URI",
                            (int)(bytes - i < 3 ? bytes - i : 3), text + i);
        }
        copy[used++] = (char)(high * 16 + low);
        i += 2;
    }
    copy[used] = '\0';
    *out = copy;
    return LIG_OK;
}

static lig_status add_option(ligi_uri *uri, const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    size_t key_bytes = equals ? (size_t)(equals - text) : bytes;
    if (key_bytes == 0)
        return lig_fail(LIG_E_INVALID, "option without a name in a URI: '%.*s'", (int)bytes, text);
    if (uri->option_count == LIGI_URI_OPTIONS_MAX)
        return lig_fail(LIG_E_LIMIT, "more than %d options in a URI", LIGI_URI_OPTIONS_MAX);
    ligi_uri_option *option = &uri->options[uri->option_count];
    LIG_TRY(decoded(&option->key, text, key_bytes, 1));
    const char *value = equals ? equals + 1 : "1";
    size_t value_bytes = equals ? bytes - key_bytes - 1 : 1;
    lig_status status = decoded(&option->value, value, value_bytes, 1);
    if (status == LIG_OK && ligi_uri_option_get(uri, option->key)) {
        status = lig_fail(LIG_E_INVALID, "duplicate option '%s' in a URI", option->key);
        free(option->value);
    }
    if (status != LIG_OK) {
        free(option->key);
        return status;
    }
    uri->option_count++;
    return LIG_OK;
}

static lig_status parse_query(ligi_uri *uri, const char *query)
{
    LIG_TRY(
        ligi_calloc(&uri->options, LIGI_URI_OPTIONS_MAX, sizeof *uri->options, "a URI's options"));
    while (*query) {
        size_t bytes = strcspn(query, "&");
        if (bytes)
            LIG_TRY(add_option(uri, query, bytes));
        query += bytes + (query[bytes] == '&');
    }
    return LIG_OK;
}

/* file:///dir, file://localhost/dir, file:/dir and file:dir all mean a path. */
static lig_status skip_file_host(const char **rest, size_t *bytes)
{
    if (*bytes < 2 || strncmp(*rest, "//", 2) != 0)
        return LIG_OK;
    const char *host = *rest + 2;
    size_t host_bytes = 0;
    while (host_bytes < *bytes - 2 && host[host_bytes] != '/')
        host_bytes++;
    if (host_bytes && !(host_bytes == 9 && strncmp(host, "localhost", 9) == 0))
        return lig_fail(LIG_E_INVALID,
                        "'file://%.*s': a file: URI has no host (write file:///%.*s for a path)",
                        (int)(*bytes - 2), host, (int)(*bytes - 2), host);
    *rest = host + host_bytes;
    *bytes -= 2 + host_bytes;
    return LIG_OK;
}

static lig_status parse(ligi_uri *uri, const char *text)
{
    size_t prefix = scheme_bytes(text);
    const char *rest = text + prefix;
    const char *query = find_query(rest, prefix == 0);
    size_t rest_bytes = query ? (size_t)(query - rest) : strlen(rest);
    if (prefix) {
        LIG_TRY(decoded(&uri->scheme, text, prefix - 1, 0));
        for (char *c = uri->scheme; *c; c++)
            *c = (char)tolower((unsigned char)*c);
    } else {
        LIG_TRY(ligi_strdup(&uri->scheme, "file"));
    }
    if (prefix && strcmp(uri->scheme, "file") == 0)
        LIG_TRY(skip_file_host(&rest, &rest_bytes));
    LIG_TRY(decoded(&uri->rest, rest, rest_bytes, prefix != 0));
    return query ? parse_query(uri, query + 1) : LIG_OK;
}

lig_status ligi_uri_parse(ligi_uri *uri, const char *text)
{
    if (text[0] == '\0')
        return lig_fail(LIG_E_INVALID, "empty URI or path");
    if (strlen(text) > LIGI_URI_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "URI longer than %d bytes", LIGI_URI_BYTES_MAX);
    ligi_uri parsed = {0};
    lig_status status = parse(&parsed, text);
    if (status != LIG_OK) {
        ligi_uri_fini(&parsed);
        return status;
    }
    *uri = parsed;
    return LIG_OK;
}

void ligi_uri_fini(ligi_uri *uri)
{
    for (size_t i = 0; i < uri->option_count; i++) {
        free(uri->options[i].key);
        free(uri->options[i].value);
    }
    free(uri->options);
    free(uri->scheme);
    free(uri->rest);
    *uri = (ligi_uri){0};
}

const char *ligi_uri_option_get(const ligi_uri *uri, const char *key)
{
    for (size_t i = 0; i < uri->option_count; i++)
        if (strcmp(uri->options[i].key, key) == 0)
            return uri->options[i].value;
    return NULL;
}
