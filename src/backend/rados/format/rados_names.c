#include "backend/rados/format/rados_names.h"

#include "base/codec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BODY_FORMAT = 1, DIGITS = 16, LOCK_NAME_MAX = 200 };

static ligi_rados_name name_of(const char *format, ...) LIG_PRINTF(1, 2);

static ligi_rados_name name_of(const char *format, ...)
{
    ligi_rados_name name;
    va_list values;

    va_start(values, format);
    vsnprintf(name.text, sizeof name.text, format, values);
    va_end(values);
    return name;
}

ligi_rados_name ligi_rados_token_text(const ligi_rados_token *token)
{
    ligi_rados_name name;

    for (size_t i = 0; i < sizeof token->bytes; i++)
        snprintf(name.text + 2 * i, 3, "%02x", token->bytes[i]);
    return name;
}

static ligi_rados_token token_of(const void *id)
{
    ligi_rados_token token;

    memcpy(token.bytes, id, sizeof token.bytes);
    return token;
}

/* Numbers have a fixed width: omap is in the order of bytes. */
ligi_rados_name ligi_rados_log_key(uint64_t version)
{
    return name_of("log/%016llx", (unsigned long long)version);
}

ligi_rados_name ligi_rados_record_name(uint64_t version, const void *id)
{
    ligi_rados_token token = token_of(id);
    return name_of("record.%016llx.%s", (unsigned long long)version,
                   ligi_rados_token_text(&token).text);
}

ligi_rados_name ligi_rados_record_key(uint64_t version, const void *id)
{
    ligi_rados_token token = token_of(id);
    return name_of("big/%016llx.%s", (unsigned long long)version,
                   ligi_rados_token_text(&token).text);
}

ligi_rados_name ligi_rados_shard_name(ligi_object_kind kind, unsigned shard)
{
    return kind == LIGI_OBJECT_PACK ? name_of("packs.%x", shard) : name_of("checkpoints");
}

unsigned ligi_rados_shard_count(ligi_object_kind kind)
{
    return kind == LIGI_OBJECT_PACK ? LIGI_RADOS_SHARDS : 1;
}

ligi_rados_name ligi_rados_list_name(ligi_object object)
{
    return ligi_rados_shard_name(object.kind, (unsigned)(object.id >> 60));
}

ligi_rados_name ligi_rados_sealed_key(uint64_t id)
{
    return name_of("sealed/%016llx", (unsigned long long)id);
}

ligi_rados_name ligi_rados_published_key(uint64_t version)
{
    return name_of("published/%016llx", (unsigned long long)version);
}

ligi_rados_name ligi_rados_writer_key(const char *state, const ligi_rados_body *body)
{
    return name_of("%s%016llx.%s", state, (unsigned long long)body->object.id,
                   ligi_rados_token_text(&body->token).text);
}

/* A pack's id is never used again. Two writers may make the checkpoint of one version, and each has
 * its stripes. */
ligi_rados_name ligi_rados_stripe_name(const ligi_rados_body *body, uint64_t stripe)
{
    unsigned long long id = body->object.id, number = stripe;

    if (body->object.kind == LIGI_OBJECT_PACK)
        return name_of("pack.%016llx.%08llx", id, number);
    return name_of("checkpoint.%016llx.%s.%08llx", id, ligi_rados_token_text(&body->token).text,
                   number);
}

static int plain_letter(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

lig_status ligi_rados_lock_name(const char *name, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "lock.");

    if (strlen(name) > LOCK_NAME_MAX || text_bytes < 3 * LOCK_NAME_MAX + 8)
        return LIG_E_LIMIT;
    for (; *name != '\0'; name++)
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 plain_letter((unsigned char)*name) ? "%c" : "%%%02x",
                                 (unsigned char)*name);
    return LIG_OK;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int digits_of(const char *text, uint64_t *number)
{
    uint64_t value = 0;

    for (int i = 0; i < DIGITS; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0)
            return 0;
        value = value << 4 | (uint64_t)digit;
    }
    *number = value;
    return 1;
}

static int begins(const char *key, size_t key_bytes, const char *begin, size_t rest)
{
    size_t bytes = strlen(begin);
    return key_bytes == bytes + rest && memcmp(key, begin, bytes) == 0;
}

int ligi_rados_key_number(const char *key, size_t key_bytes, const char *begin, uint64_t *number)
{
    return begins(key, key_bytes, begin, DIGITS) && digits_of(key + strlen(begin), number);
}

int ligi_rados_key_writer(const char *key, size_t key_bytes, const char *begin, uint64_t *number,
                          ligi_rados_token *token)
{
    uint64_t high, low;

    if (!begins(key, key_bytes, begin, 3 * DIGITS + 1))
        return 0;
    key += strlen(begin);
    if (!digits_of(key, number) || key[DIGITS] != '.' || !digits_of(key + DIGITS + 1, &high) ||
        !digits_of(key + 2 * DIGITS + 1, &low))
        return 0;
    for (int i = 0; i < 8; i++) {
        token->bytes[i] = (uint8_t)(high >> (56 - 8 * i));
        token->bytes[8 + i] = (uint8_t)(low >> (56 - 8 * i));
    }
    return 1;
}

void ligi_rados_body_encode(const ligi_rados_body *body, uint8_t value[LIGI_RADOS_BODY_BYTES])
{
    ligi_store_le(value, BODY_FORMAT, 8);
    memcpy(value + 8, body->token.bytes, sizeof body->token.bytes);
    ligi_store_le(value + 24, body->bytes, 8);
    ligi_store_le(value + 32, body->stripe_bytes, 8);
    ligi_store_le(value + 40, body->stripes_max, 8);
}

int ligi_rados_body_decode(const void *value, size_t bytes, ligi_rados_body *body)
{
    const uint8_t *from = value;

    if (bytes != LIGI_RADOS_BODY_BYTES || ligi_load_le(from, 8) != BODY_FORMAT)
        return 0;
    uint64_t stripe = ligi_load_le(from + 32, 8), stripes_max = ligi_load_le(from + 40, 8);
    if (stripe == 0 || stripe > UINT32_MAX || stripes_max > UINT32_MAX)
        return 0;
    memcpy(body->token.bytes, from + 8, sizeof body->token.bytes);
    body->bytes = ligi_load_le(from + 24, 8);
    body->stripe_bytes = stripe;
    body->stripes_max = (uint32_t)stripes_max;
    return 1;
}

/* The first stripe carries the locks, and exists also for an empty object. */
uint64_t ligi_rados_stripe_count(const ligi_rados_body *body)
{
    uint64_t count = body->bytes / body->stripe_bytes + (body->bytes % body->stripe_bytes != 0);
    return count > 0 ? count : 1;
}
