#include "backend/log/log_record.h"

#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <string.h>

#define MAGIC UINT32_C(0x5247494C) /* "LIGR" */
#define ITEM_BYTES 16              /* check, kind, key's size, zeros, value's size */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint8_t bytes[16];

    ligi_put_be64(bytes, a);
    ligi_put_be64(bytes + 8, b);
    return ligi_hash64_plain(bytes, sizeof bytes);
}

static void put_item(ligi_writer *writer, ligi_clog_kind kind, const lig_catalog_op *op,
                     uint64_t *sum)
{
    size_t start = writer->bytes;

    ligi_put_u64(writer, 0);
    ligi_put_u8(writer, (uint8_t)kind);
    ligi_put_u8(writer, (uint8_t)op->key_bytes);
    ligi_put_zeros(writer, 2);
    ligi_put_u32(writer, (uint32_t)op->value_bytes);
    ligi_put_bytes(writer, op->key, op->key_bytes);
    ligi_put_bytes(writer, op->value, op->value_bytes);
    size_t bytes = writer->bytes - start - 8;
    ligi_put_zeros(writer, (8 - bytes % 8) % 8);
    if (writer->status != LIG_OK)
        return;
    uint64_t check = ligi_hash64_plain(writer->data + start + 8, bytes);
    ligi_store_le(writer->data + start, check, 8);
    *sum = mix(*sum, check);
}

static void put_header(ligi_writer *writer, const ligi_clog_header *header)
{
    ligi_put_u32(writer, MAGIC);
    ligi_put_u32(writer, header->items);
    ligi_put_u64(writer, header->bytes);
    ligi_put_u64(writer, header->version);
    ligi_put_u64(writer, header->previous);
    ligi_put_u64(writer, header->synced);
    ligi_put_u64(writer, (uint64_t)header->date_ns);
    ligi_put_u64(writer, header->sum);
}

lig_status ligi_clog_record_put(ligi_writer *writer, const lig_catalog_edit *edit,
                                ligi_clog_header *header)
{
    size_t start = writer->bytes;

    header->sum = 0;
    header->items = (uint32_t)(edit->event_count + edit->op_count);
    ligi_put_zeros(writer, LIGI_CLOG_HEADER_BYTES);
    for (size_t i = 0; i < edit->event_count; i++) {
        const lig_catalog_op op = {
            .key = "", .value = edit->events[i].data, .value_bytes = edit->events[i].bytes};
        put_item(writer, LIGI_CLOG_EVENT, &op, &header->sum);
    }
    for (size_t i = 0; i < edit->op_count; i++) {
        lig_catalog_op op = edit->ops[i];
        if (op.value == NULL)
            op.value_bytes = 0;
        put_item(writer, op.value == NULL ? LIGI_CLOG_ERASE : LIGI_CLOG_PUT, &op, &header->sum);
    }
    LIG_TRY(writer->status);
    header->bytes = writer->bytes - start;
    ligi_writer made = {0};
    put_header(&made, header);
    if (made.status == LIG_OK)
        header->check = ligi_hash64_plain(made.data, made.bytes);
    ligi_put_u64(&made, header->check);
    if (made.status == LIG_OK)
        memcpy(writer->data + start, made.data, LIGI_CLOG_HEADER_BYTES);
    lig_status status = made.status;
    ligi_writer_fini(&made);
    return status;
}

int ligi_clog_header_get(const uint8_t bytes[LIGI_CLOG_HEADER_BYTES], ligi_clog_header *header)
{
    ligi_reader reader = {.data = bytes, .bytes = LIGI_CLOG_HEADER_BYTES};

    if (ligi_get_u32(&reader) != MAGIC)
        return 0;
    header->items = ligi_get_u32(&reader);
    header->bytes = ligi_get_u64(&reader);
    header->version = ligi_get_u64(&reader);
    header->previous = ligi_get_u64(&reader);
    header->synced = ligi_get_u64(&reader);
    header->date_ns = (int64_t)ligi_get_u64(&reader);
    header->sum = ligi_get_u64(&reader);
    header->check = ligi_get_u64(&reader);
    return header->check == ligi_hash64_plain(bytes, LIGI_CLOG_HEADER_BYTES - 8) &&
           header->bytes >= LIGI_CLOG_HEADER_BYTES && header->bytes % 8 == 0;
}

int ligi_clog_item_next(const uint8_t *record, size_t bytes, size_t *at, ligi_clog_item *item)
{
    if (*at > bytes || bytes - *at < ITEM_BYTES)
        return 0;
    ligi_reader reader = {.data = record, .bytes = bytes, .at = *at};
    item->check = ligi_get_u64(&reader);
    uint8_t kind = ligi_get_u8(&reader);
    item->key_bytes = ligi_get_u8(&reader);
    (void)ligi_get_bytes(&reader, 2);
    item->value_bytes = ligi_get_u32(&reader);
    item->key = ligi_get_bytes(&reader, item->key_bytes);
    item->at = reader.at;
    item->value = ligi_get_bytes(&reader, item->value_bytes);
    if (reader.failed || kind > LIGI_CLOG_EVENT)
        return 0;
    item->kind = (ligi_clog_kind)kind;
    size_t hashed = reader.at - *at - 8;
    if (item->check != ligi_hash64_plain(record + *at + 8, hashed))
        return 0;
    *at = reader.at + (8 - hashed % 8) % 8;
    return 1;
}

int ligi_clog_item_skip(const uint8_t *record, size_t bytes, size_t *at)
{
    if (*at > bytes || bytes - *at < ITEM_BYTES)
        return 0;
    ligi_reader reader = {.data = record, .bytes = bytes, .at = *at + 9};
    size_t sizes = ligi_get_u8(&reader);
    (void)ligi_get_bytes(&reader, 2);
    sizes += ligi_get_u32(&reader);
    size_t next = *at + ITEM_BYTES + sizes;
    next += (8 - next % 8) % 8;
    if (reader.failed || next > bytes)
        return 0;
    *at = next;
    return 1;
}

int ligi_clog_record_whole(const uint8_t *record, const ligi_clog_header *header)
{
    size_t at = LIGI_CLOG_HEADER_BYTES;
    uint64_t sum = 0;
    ligi_clog_item item;

    for (uint32_t i = 0; i < header->items; i++) {
        if (!ligi_clog_item_next(record, header->bytes, &at, &item))
            return 0;
        sum = mix(sum, item.check);
    }
    return at == header->bytes && sum == header->sum;
}

uint64_t ligi_clog_chain(const ligi_clog_header *header)
{
    return mix(header->previous, header->check);
}

uint64_t ligi_clog_chain_start(const uint8_t id[16])
{
    return ligi_hash64_plain(id, 16);
}
