#include "backend/s3/wire/s3_place.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "backend/s3/wire/s3_text.h"

#define BUCKET_BYTES_LEAST 3

static lig_status parse_bucket(const ligi_engine_host *host, const char *name, size_t bytes,
                               ligi_s3_place *place)
{
    if (bytes < BUCKET_BYTES_LEAST || bytes >= sizeof place->bucket)
        return host->fail(LIG_E_INVALID,
                          "s3: the bucket's name '%.*s' must have 3 to 63 characters "
                          "(s3://bucket/prefix)",
                          (int)(bytes < 80 ? bytes : 80), name);
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL)
            return host->fail(
                LIG_E_INVALID,
                "s3: the bucket's name '%.*s' contains '%c' (letters, digits, '.', '_' "
                "and '-' are allowed)",
                (int)bytes, name, name[i]);
    memcpy(place->bucket, name, bytes);
    place->bucket[bytes] = '\0';
    return LIG_OK;
}

/* "." and ".." would be resolved on the way by clients and proxies. */
static int is_dots(const char *word, size_t bytes)
{
    return (bytes == 1 && word[0] == '.') || (bytes == 2 && word[0] == '.' && word[1] == '.');
}

static lig_status parse_prefix(const ligi_engine_host *host, const char *text, ligi_s3_place *place)
{
    ligi_s3_text prefix = ligi_s3_text_over(place->prefix, sizeof place->prefix);

    while (*text != '\0') {
        size_t bytes = strcspn(text, "/");
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
                return host->fail(LIG_E_INVALID, "s3: control character in the prefix of a store");
        if (is_dots(text, bytes))
            return host->fail(LIG_E_INVALID, "s3: '%.*s' is not allowed in the prefix of a store",
                              (int)bytes, text);
        if (bytes > 0) {
            ligi_s3_text_add_bytes(&prefix, text, bytes);
            ligi_s3_text_add(&prefix, "/");
        }
        text += bytes + (text[bytes] == '/');
    }
    if (prefix.full)
        return host->fail(LIG_E_LIMIT, "s3: the prefix of a store has more than %zu bytes",
                          sizeof place->prefix - 1);
    return LIG_OK;
}

/* Bytes of "host", "host:port" or "[address]:port" if it is well-formed, otherwise 0. */
static size_t host_bytes(const char *text)
{
    size_t bytes = 0;

    if (text[0] == '[') {
        size_t inner = strspn(text + 1, "0123456789abcdefABCDEF:.");
        if (inner == 0 || text[1 + inner] != ']')
            return 0;
        bytes = inner + 2;
    } else {
        while (isalnum((unsigned char)text[bytes]) ||
               (text[bytes] != '\0' && strchr(".-_", text[bytes]) != NULL))
            bytes++;
    }
    if (bytes > 0 && text[bytes] == ':') {
        size_t digits = strspn(text + bytes + 1, "0123456789");
        if (digits == 0 || digits > 5)
            return 0;
        bytes += 1 + digits;
    }
    return bytes;
}

/* A default port is not part of the Host header that libcurl sends, so not of the signed one. */
static void drop_default_port(ligi_s3_place *place)
{
    const char *port = place->tls ? ":443" : ":80";
    size_t bytes = strlen(place->host), port_bytes = strlen(port);

    if (bytes > port_bytes && strcmp(place->host + bytes - port_bytes, port) == 0)
        place->host[bytes - port_bytes] = '\0';
}

static lig_status parse_endpoint(const ligi_engine_host *host, const char *endpoint,
                                 ligi_s3_place *place)
{
    const char *name = endpoint;

    place->tls = 1;
    if (strncasecmp(endpoint, "http://", 7) == 0) {
        place->tls = 0;
        name += 7;
    } else if (strncasecmp(endpoint, "https://", 8) == 0) {
        name += 8;
    }
    size_t bytes = host_bytes(name);
    if (bytes == 0 || bytes >= 256 || (name[bytes] != '\0' && strcmp(name + bytes, "/") != 0))
        return host->fail(LIG_E_INVALID,
                          "s3: invalid endpoint '%.200s' (expected https://host[:port], or http:// "
                          "for a server without TLS)",
                          endpoint);
    memcpy(place->host, name, bytes);
    place->host[bytes] = '\0';
    drop_default_port(place);
    return LIG_OK;
}

static lig_status parse_region(const ligi_engine_host *host, const char *region,
                               ligi_s3_place *place)
{
    size_t bytes = strlen(region), good = 0;

    while (good < bytes &&
           (isalnum((unsigned char)region[good]) || strchr("-_.", region[good]) != NULL))
        good++;
    if (bytes == 0 || good != bytes || bytes >= sizeof place->region)
        return host->fail(LIG_E_INVALID, "s3: invalid region '%.80s' (example: us-east-1)", region);
    memcpy(place->region, region, bytes + 1);
    return LIG_OK;
}

/* Bucket names with a dot do not match the wildcard of a certificate. */
static lig_status choose_addressing(const ligi_engine_host *host,
                                    const ligi_s3_place_options *options, ligi_s3_place *place)
{
    char plain[LIGI_S3_HOST_BYTES];

    if (options->addressing == NULL)
        place->bucket_in_host = options->endpoint == NULL && strchr(place->bucket, '.') == NULL;
    else if (strcmp(options->addressing, "host") == 0)
        place->bucket_in_host = 1;
    else if (strcmp(options->addressing, "path") == 0)
        place->bucket_in_host = 0;
    else
        return host->fail(LIG_E_INVALID, "s3: addressing is '%.80s' (expected 'path' or 'host')",
                          options->addressing);
    if (!place->bucket_in_host)
        return LIG_OK;
    memcpy(plain, place->host, sizeof plain);
    if (snprintf(place->host, sizeof place->host, "%s.%s", place->bucket, plain) >=
        (int)sizeof place->host)
        return host->fail(LIG_E_LIMIT, "s3: the endpoint's host name is too long");
    return LIG_OK;
}

lig_status ligi_s3_place_parse(const ligi_engine_host *host, const char *rest,
                               const ligi_s3_place_options *options, ligi_s3_place *place)
{
    ligi_s3_place made = {0};

    while (*rest == '/')
        rest++;
    size_t bucket_bytes = strcspn(rest, "/");
    LIG_TRY(parse_bucket(host, rest, bucket_bytes, &made));
    LIG_TRY(parse_prefix(host, rest + bucket_bytes, &made));
    LIG_TRY(parse_region(host, options->region != NULL ? options->region : "us-east-1", &made));
    if (options->endpoint != NULL) {
        LIG_TRY(parse_endpoint(host, options->endpoint, &made));
    } else {
        made.tls = 1;
        snprintf(made.host, sizeof made.host, "s3.%s.amazonaws.com", made.region);
    }
    LIG_TRY(choose_addressing(host, options, &made));
    *place = made;
    return LIG_OK;
}

int ligi_s3_place_path(const ligi_s3_place *place, const char *key, char *path, size_t path_bytes)
{
    ligi_s3_text text = ligi_s3_text_over(path, path_bytes);

    ligi_s3_text_add(&text, "/");
    if (!place->bucket_in_host)
        ligi_s3_text_encode(&text, place->bucket, 0);
    if (key != NULL) {
        if (!place->bucket_in_host)
            ligi_s3_text_add(&text, "/");
        ligi_s3_text_encode(&text, place->prefix, 1);
        ligi_s3_text_encode(&text, key, 1);
    }
    return !text.full;
}
