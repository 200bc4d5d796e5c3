#include "backend/s3/wire/s3_sign.h"

#include <stdio.h>
#include <string.h>

#include "backend/s3/wire/s3_text.h"

#define CANONICAL_BYTES (16 * 1024)
#define SCOPE_BYTES 128
#define SECRET_BYTES_MAX 512

static void hexadecimal(const uint8_t digest[LIGI_S3_SHA256_BYTES],
                        char text[LIGI_S3_SHA256_TEXT_BYTES])
{
    for (size_t i = 0; i < LIGI_S3_SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

int ligi_s3_sha256_text(const ligi_s3_digest *digest, const void *data, size_t bytes,
                        char text[LIGI_S3_SHA256_TEXT_BYTES])
{
    uint8_t raw[LIGI_S3_SHA256_BYTES];

    if (!digest->sha256(digest->context, data, bytes, raw))
        return 0;
    hexadecimal(raw, text);
    return 1;
}

static void add_signed_names(const ligi_s3_signing *request, ligi_s3_text *text)
{
    for (size_t i = 0; i < request->header_count; i++)
        ligi_s3_text_format(text, "%s%s", i == 0 ? "" : ";", request->headers[i].name);
}

static int hash_canonical(const ligi_s3_digest *digest, const ligi_s3_signing *request,
                          char hash[LIGI_S3_SHA256_TEXT_BYTES])
{
    char buffer[CANONICAL_BYTES];
    ligi_s3_text text = ligi_s3_text_over(buffer, sizeof buffer);

    ligi_s3_text_format(&text, "%s\n%s\n%s\n", request->method, request->path, request->query);
    for (size_t i = 0; i < request->header_count; i++)
        ligi_s3_text_format(&text, "%s:%s\n", request->headers[i].name, request->headers[i].value);
    ligi_s3_text_add(&text, "\n");
    add_signed_names(request, &text);
    ligi_s3_text_format(&text, "\n%s", request->payload);
    return !text.full && ligi_s3_sha256_text(digest, text.data, text.bytes, hash);
}

/* The key of the day, region and service, then the signature itself. */
static int make_signature(const ligi_s3_digest *digest, const ligi_s3_signing *request,
                          const char *to_sign, uint8_t signature[LIGI_S3_SHA256_BYTES])
{
    char secret[SECRET_BYTES_MAX];
    uint8_t key[LIGI_S3_SHA256_BYTES];
    const char *words[] = {request->region, "s3", "aws4_request", to_sign};

    int bytes = snprintf(secret, sizeof secret, "AWS4%s", request->secret_key);
    const ligi_s3_bytes whole = {secret, (size_t)bytes}, day = {request->date, 8};
    int done = bytes > 0 && (size_t)bytes < sizeof secret &&
               digest->hmac(digest->context, &whole, &day, key);
    explicit_bzero(secret, sizeof secret);
    for (size_t i = 0; done && i < sizeof words / sizeof *words; i++) {
        const ligi_s3_bytes last = {key, sizeof key}, word = {words[i], strlen(words[i])};
        done = digest->hmac(digest->context, &last, &word, signature);
        memcpy(key, signature, sizeof key);
    }
    explicit_bzero(key, sizeof key);
    return done;
}

int ligi_s3_sign(const ligi_s3_digest *digest, const ligi_s3_signing *request,
                 char authorization[LIGI_S3_AUTHORIZATION_BYTES])
{
    char hash[LIGI_S3_SHA256_TEXT_BYTES], scope[SCOPE_BYTES], to_sign[512];
    uint8_t signature[LIGI_S3_SHA256_BYTES];
    ligi_s3_text text = ligi_s3_text_over(authorization, LIGI_S3_AUTHORIZATION_BYTES);
    ligi_s3_text sign_text = ligi_s3_text_over(to_sign, sizeof to_sign);

    if (strlen(request->date) < 8 || !hash_canonical(digest, request, hash))
        return 0;
    int scope_bytes =
        snprintf(scope, sizeof scope, "%.8s/%s/s3/aws4_request", request->date, request->region);
    if (scope_bytes < 0 || (size_t)scope_bytes >= sizeof scope)
        return 0;
    ligi_s3_text_format(&sign_text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", request->date, scope, hash);
    if (sign_text.full || !make_signature(digest, request, to_sign, signature))
        return 0;
    hexadecimal(signature, hash);
    ligi_s3_text_format(
        &text, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", request->access_key, scope);
    add_signed_names(request, &text);
    ligi_s3_text_format(&text, ", Signature=%s", hash);
    return !text.full;
}
