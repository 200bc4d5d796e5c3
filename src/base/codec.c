#include "base/codec.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static uint8_t *room(ligi_writer *writer, size_t bytes)
{
    if (writer->status != LIG_OK)
        return NULL;
    if (bytes > SIZE_MAX - writer->bytes) {
        writer->status = lig_fail(LIG_E_LIMIT, "record too large");
        return NULL;
    }
    writer->status =
        ligi_grow(&writer->data, &writer->capacity, writer->bytes + bytes, 1, "a record");
    if (writer->status != LIG_OK)
        return NULL;
    uint8_t *at = writer->data + writer->bytes;
    writer->bytes += bytes;
    return at;
}

static void put_le(ligi_writer *writer, uint64_t value, int bytes)
{
    uint8_t *at = room(writer, (size_t)bytes);
    if (at)
        ligi_store_le(at, value, (size_t)bytes);
}

void ligi_put_u8(ligi_writer *writer, uint8_t value)
{
    put_le(writer, value, 1);
}

void ligi_put_u32(ligi_writer *writer, uint32_t value)
{
    put_le(writer, value, 4);
}

void ligi_put_u64(ligi_writer *writer, uint64_t value)
{
    put_le(writer, value, 8);
}

void ligi_put_f64(ligi_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    ligi_put_u64(writer, bits);
}

void ligi_put_varint(ligi_writer *writer, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    while (value >= 0x80) {
        bytes[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[count++] = (uint8_t)value;
    ligi_put_bytes(writer, bytes, count);
}

void ligi_put_bytes(ligi_writer *writer, const void *data, size_t bytes)
{
    uint8_t *at = room(writer, bytes);
    if (at && bytes)
        memcpy(at, data, bytes);
}

void ligi_put_text(ligi_writer *writer, const char *text)
{
    size_t bytes = strlen(text);
    ligi_put_varint(writer, bytes);
    ligi_put_bytes(writer, text, bytes + 1);
}

void ligi_put_zeros(ligi_writer *writer, size_t bytes)
{
    uint8_t *at = room(writer, bytes);
    if (at && bytes)
        memset(at, 0, bytes);
}

void ligi_writer_fini(ligi_writer *writer)
{
    free(writer->data);
    *writer = (ligi_writer){0};
}

const void *ligi_get_bytes(ligi_reader *reader, size_t bytes)
{
    if (reader->failed || bytes > reader->bytes - reader->at) {
        reader->failed = 1;
        return NULL;
    }
    const uint8_t *at = reader->data + reader->at;
    reader->at += bytes;
    return at;
}

static uint64_t get_le(ligi_reader *reader, int bytes)
{
    const uint8_t *at = ligi_get_bytes(reader, (size_t)bytes);
    return at ? ligi_load_le(at, (size_t)bytes) : 0;
}

uint8_t ligi_get_u8(ligi_reader *reader)
{
    return (uint8_t)get_le(reader, 1);
}

uint32_t ligi_get_u32(ligi_reader *reader)
{
    return (uint32_t)get_le(reader, 4);
}

uint64_t ligi_get_u64(ligi_reader *reader)
{
    return get_le(reader, 8);
}

double ligi_get_f64(ligi_reader *reader)
{
    uint64_t bits = ligi_get_u64(reader);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint64_t ligi_get_varint(ligi_reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = ligi_get_u8(reader);
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    reader->failed = 1;
    return 0;
}

const char *ligi_get_text(ligi_reader *reader, size_t max_bytes)
{
    uint64_t bytes = ligi_get_varint(reader);
    if (reader->failed || bytes > max_bytes || bytes >= reader->bytes - reader->at) {
        reader->failed = 1;
        return "";
    }
    const char *text = ligi_get_bytes(reader, (size_t)bytes + 1);
    if (text == NULL || memchr(text, '\0', (size_t)bytes + 1) != text + bytes) {
        reader->failed = 1;
        return "";
    }
    return text;
}

size_t ligi_get_count(ligi_reader *reader, size_t least)
{
    uint64_t count = ligi_get_varint(reader);
    if (reader->failed || (least && count > (reader->bytes - reader->at) / least)) {
        reader->failed = 1;
        return 0;
    }
    return (size_t)count;
}

void ligi_put_be64(void *out, uint64_t value)
{
    uint8_t *bytes = out;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (56 - 8 * i));
}

uint64_t ligi_get_be64(const void *in)
{
    const uint8_t *bytes = in;
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* The length of the UTF-8 sequence at `text`; 0 if there is no valid one in `left` bytes. */
static size_t utf8_sequence(const unsigned char *text, size_t left)
{
    unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || bytes > left)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    int overlong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    int outside = (lead == 0xed && text[1] >= 0xa0) || (lead == 0xf4 && text[1] >= 0x90);
    return overlong || outside ? 0 : bytes;
}

int ligi_utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    for (size_t i = 0; i < bytes;) {
        size_t step = utf8_sequence(at + i, bytes - i);
        if (step == 0)
            return 0;
        i += step;
    }
    return 1;
}
