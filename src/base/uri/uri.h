/* A URI of the form scheme:rest?key=value&key=value. */
#ifndef LIGI_URI_H
#define LIGI_URI_H

#include <ligament/base.h>

typedef struct ligi_uri_option {
    char *key, *value; /* percent-decoded */
} ligi_uri_option;

typedef struct ligi_uri {
    char *scheme; /* lower case; "file" for a plain path */
    char *rest;   /* the text between "scheme:" and "?", percent-decoded; "//" and an empty or
                   * "localhost" host are removed for file:, kept for other schemes */
    ligi_uri_option *options;
    size_t option_count;
} ligi_uri;

#define LIGI_URI_BYTES_MAX 8192
#define LIGI_URI_OPTIONS_MAX 64

/* Parses; a text without a scheme ("[A-Za-z][A-Za-z0-9+._-]*:", at least two letters) is a path,
 * taken whole and literally except for the query behind the last '?' of the form "?key=...".
 * Rejects encoded NULs, invalid %xx, an empty key, the same key twice. */
lig_status ligi_uri_parse(ligi_uri *uri, const char *text);
void ligi_uri_fini(ligi_uri *uri);
/* The value of a key, NULL if it is absent. */
const char *ligi_uri_option_get(const ligi_uri *uri, const char *key);

#endif
