#include "net/frame/frame.h"

#include "base/codec.h"

#include <stdio.h>
#include <string.h>

#define MAGIC UINT32_C(0x004e474c) /* 'L' 'G' 'N' */
#define MAGIC_MASK UINT32_C(0x00ffffff)

void ligi_frame_prefix_encode(const ligi_frame_prefix *prefix, uint8_t bytes[LIGI_PREFIX_BYTES])
{
    ligi_store_le(bytes, MAGIC | prefix->kind << 24, 4);
    ligi_store_le(bytes + 4, prefix->head_bytes, 4);
    ligi_store_le(bytes + 8, prefix->payload_bytes, 8);
}

lig_status ligi_frame_prefix_decode(const uint8_t bytes[LIGI_PREFIX_BYTES],
                                    ligi_frame_prefix *prefix)
{
    uint32_t first = (uint32_t)ligi_load_le(bytes, 4);
    if ((first & MAGIC_MASK) != MAGIC)
        return lig_fail(LIG_E_CORRUPT, "not a Ligament message: it begins with %02x %02x %02x %02x",
                        bytes[0], bytes[1], bytes[2], bytes[3]);
    prefix->kind = first >> 24;
    prefix->head_bytes = (uint32_t)ligi_load_le(bytes + 4, 4);
    prefix->payload_bytes = ligi_load_le(bytes + 8, 8);
    return LIG_OK;
}

void ligi_hello_encode(const ligi_hello *hello, uint32_t service, ligi_writer *writer)
{
    ligi_put_u32(writer, LIGI_NET_VERSION);
    ligi_put_u32(writer, service);
    ligi_put_bytes(writer, hello->boot_id, sizeof hello->boot_id);
    ligi_put_bytes(writer, hello->net_id, sizeof hello->net_id);
    ligi_put_u32(writer, hello->uid);
    ligi_put_u32(writer, hello->pid);
    ligi_put_u32(writer, (uint32_t)hello->bytes);
    ligi_put_bytes(writer, hello->data, hello->bytes);
}

static void get_id(ligi_reader *reader, uint8_t id[16])
{
    const void *bytes = ligi_get_bytes(reader, 16);
    if (bytes != NULL)
        memcpy(id, bytes, 16);
}

lig_status ligi_hello_decode(const void *data, size_t bytes, ligi_hello *hello, uint32_t *service)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    uint32_t version = ligi_get_u32(&reader);

    if (!reader.failed && version != LIGI_NET_VERSION)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "protocol version mismatch: the peer has version %u, this process version %d (use the "
            "same version of Ligament on both sides)",
            version, LIGI_NET_VERSION);
    *service = ligi_get_u32(&reader);
    get_id(&reader, hello->boot_id);
    get_id(&reader, hello->net_id);
    hello->uid = ligi_get_u32(&reader);
    hello->pid = ligi_get_u32(&reader);
    hello->bytes = ligi_get_u32(&reader);
    if (hello->bytes > LIGI_HELLO_BYTES_MAX)
        return lig_fail(LIG_E_CORRUPT, "hello too long: %zu bytes, the limit is %d", hello->bytes,
                        LIGI_HELLO_BYTES_MAX);
    hello->data = ligi_get_bytes(&reader, hello->bytes);
    if (reader.failed || reader.at != reader.bytes)
        return lig_fail(LIG_E_CORRUPT, "malformed hello of %zu bytes", bytes);
    return LIG_OK;
}

static char printable(char letter)
{
    unsigned char byte = (unsigned char)letter;
    return byte >= 32 && byte != 127 ? letter : '?';
}

size_t ligi_bye_encode(lig_status status, const char *text, uint8_t bytes[LIGI_BYE_HEAD_MAX])
{
    size_t length = strnlen(text, LIGI_BYE_TEXT_MAX);
    ligi_store_le(bytes, (uint32_t)status, 4);
    memcpy(bytes + 4, text, length);
    return 4 + length;
}

lig_status ligi_bye_decode(const void *data, size_t bytes, lig_status *status,
                           char text[LIGI_BYE_TEXT_MAX + 1])
{
    if (bytes < 4 || bytes > LIGI_BYE_HEAD_MAX)
        return lig_fail(LIG_E_CORRUPT, "malformed goodbye of %zu bytes", bytes);
    uint32_t number = (uint32_t)ligi_load_le(data, 4);
    *status = number > LIG_OK && number <= LIG_E_INTERNAL ? (lig_status)number : LIG_E_CLOSED;
    size_t length = bytes - 4;
    memcpy(text, (const uint8_t *)data + 4, length);
    text[length] = '\0';
    for (char *letter = text; *letter; letter++)
        *letter = printable(*letter);
    if (!ligi_utf8_valid(text, strlen(text)))
        for (char *letter = text; *letter; letter++)
            if ((unsigned char)*letter > 126)
                *letter = '?';
    return LIG_OK;
}

lig_status ligi_card_encode(const ligi_card *card, void *data, size_t *bytes)
{
    ligi_writer writer = {0};
    ligi_put_u32(&writer, LIGI_NET_VERSION);
    ligi_put_bytes(&writer, card->boot_id, sizeof card->boot_id);
    ligi_put_bytes(&writer, card->net_id, sizeof card->net_id);
    ligi_put_u8(&writer, (uint8_t)card->count);
    for (size_t i = 0; i < card->count; i++)
        ligi_put_text(&writer, card->addresses[i]);
    lig_status status = writer.status;
    if (status == LIG_OK && writer.bytes > *bytes)
        status =
            lig_fail(LIG_E_LIMIT, "a card with %zu addresses needs %zu bytes, but the limit is %zu",
                     card->count, writer.bytes, *bytes);
    if (status == LIG_OK) {
        memcpy(data, writer.data, writer.bytes);
        *bytes = writer.bytes;
    }
    ligi_writer_fini(&writer);
    return status;
}

lig_status ligi_card_decode(const void *data, size_t bytes, ligi_card *card)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    uint32_t version = ligi_get_u32(&reader);

    if (!reader.failed && version != LIGI_NET_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED, "unknown card version %u: this process knows version %d",
                        version, LIGI_NET_VERSION);
    get_id(&reader, card->boot_id);
    get_id(&reader, card->net_id);
    card->count = ligi_get_u8(&reader);
    if (card->count > LIGI_CARD_ADDRESSES_MAX)
        return lig_fail(LIG_E_CORRUPT, "invalid card: %zu addresses", card->count);
    for (size_t i = 0; i < card->count; i++)
        card->addresses[i] = ligi_get_text(&reader, LIGI_ADDRESS_BYTES_MAX - 1);
    if (reader.failed || reader.at != reader.bytes)
        return lig_fail(LIG_E_CORRUPT, "malformed card of %zu bytes", bytes);
    return LIG_OK;
}
