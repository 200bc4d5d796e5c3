#include "store/serve/roles/hidden_place.h"

#include "base/uri/uri.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SHOWN "the store"

static int is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* The path of a store may be part of a model's name, or of another path. */
static int begins_at(const char *text, const char *at)
{
    return at == text || (!is_of_name(at[-1]) && at[-1] != '/' && at[-1] != '.');
}

static int stands_at(const char *text, const char *at, const char *place, size_t bytes)
{
    return strncmp(at, place, bytes) == 0 && !is_of_name(at[bytes]) && begins_at(text, at);
}

/* The address of a storage service, which may come from the environment: its bytes, or 0. */
static size_t endpoint_at(const char *text, const char *at)
{
    if ((strncmp(at, "http://", 7) != 0 && strncmp(at, "https://", 8) != 0) || !begins_at(text, at))
        return 0;
    size_t bytes = strcspn(at, " ,;'\"()?");
    while (bytes > 0 && (at[bytes - 1] == ':' || at[bytes - 1] == '.'))
        bytes--;
    return bytes;
}

/* A place without '/' is a word that may occur in the text for another reason. */
static void hide(const char *text, const char *place, char out[LIGI_ERROR_TEXT_BYTES])
{
    size_t bytes = strlen(place), used = 0;
    while (bytes > 0 && place[bytes - 1] == '/')
        bytes--;
    int is_place = memchr(place, '/', bytes) != NULL;
    const char *at = text;
    while (*at && used + sizeof SHOWN < LIGI_ERROR_TEXT_BYTES) {
        size_t hidden =
            is_place && stands_at(text, at, place, bytes) ? bytes : endpoint_at(text, at);
        if (hidden) {
            memcpy(out + used, SHOWN, sizeof SHOWN - 1);
            used += sizeof SHOWN - 1;
            at += hidden;
        } else {
            out[used++] = *at++;
        }
    }
    out[used] = '\0';
}

void ligi_served_place_hide(const char *text, const char *store_uri,
                            char out[LIGI_ERROR_TEXT_BYTES])
{
    char half[LIGI_ERROR_TEXT_BYTES];
    ligi_uri uri;
    hide(text, store_uri, half);
    if (ligi_uri_parse(&uri, store_uri) != LIG_OK) {
        memcpy(out, half, sizeof half);
        return;
    }
    hide(half, uri.rest, out);
    ligi_uri_fini(&uri);
}
