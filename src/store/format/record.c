#include "store/format/record.h"

#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char magic[4] = {'L', 'I', 'G', 'C'};

enum { HASH_BYTES = 8, USE_BYTES = 2 };

ligi_catalog_key ligi_catalog_key_header(void)
{
    return (ligi_catalog_key){.bytes = {LIGI_TABLE_HEADER}, .size = 1};
}

ligi_catalog_key ligi_catalog_key_id(enum ligi_table table, uint64_t id)
{
    ligi_catalog_key key = {.bytes = {(uint8_t)table}, .size = 9};
    ligi_put_be64(key.bytes + 1, id);
    return key;
}

ligi_catalog_key ligi_catalog_key_text(enum ligi_table table, const void *secret, const char *text)
{
    ligi_catalog_key key = {.bytes = {(uint8_t)table}, .size = 17};
    ligi_hash128 hash = ligi_hash128_keyed(secret, text, strlen(text));
    ligi_put_be64(key.bytes + 1, hash.low);
    ligi_put_be64(key.bytes + 9, hash.high);
    return key;
}

/* A value copied under another key is as invalid as a damaged one, so the key is hashed with it. */
static uint64_t value_hash(const void *secret, const void *value, size_t bytes, const void *key,
                           size_t key_bytes)
{
    uint64_t parts[2];
    parts[0] = secret ? ligi_hash64(secret, value, bytes) : ligi_hash64_plain(value, bytes);
    parts[1] = ligi_hash64_plain(key, key_bytes);
    return ligi_hash64_plain(parts, sizeof parts);
}

void ligi_value_begin(ligi_writer *writer)
{
    writer->bytes = 0;
    ligi_put_u8(writer, LIGI_FORMAT_VERSION);
}

void ligi_value_end(ligi_writer *writer, const ligi_catalog_key *key, const void *secret)
{
    if (writer->status == LIG_OK)
        ligi_put_u64(writer,
                     value_hash(secret, writer->data, writer->bytes, key->bytes, key->size));
}

void ligi_value_seal_again(const ligi_catalog_key *key, void *value, size_t bytes,
                           const void *secret)
{
    assert(bytes > HASH_BYTES);
    bytes -= HASH_BYTES;
    uint64_t hash = value_hash(secret, value, bytes, key->bytes, key->size);
    ligi_store_le((uint8_t *)value + bytes, hash, HASH_BYTES);
}

lig_status ligi_value_open(const lig_catalog_item *item, const void *secret, ligi_reader *reader)
{
    unsigned table = item->key_bytes ? *(const uint8_t *)item->key : 0;
    if (item->value_bytes < 1 + HASH_BYTES)
        return lig_fail(LIG_E_CORRUPT, "truncated record in table %u of the catalog", table);
    const uint8_t *value = item->value;
    size_t bytes = item->value_bytes - HASH_BYTES;
    if (value[0] > LIGI_FORMAT_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "a record of the catalog has version %u, but this library supports "
                        "versions up to %d (use a newer library)",
                        value[0], LIGI_FORMAT_VERSION);
    ligi_reader tail = {.data = value, .bytes = item->value_bytes, .at = bytes};
    if (ligi_get_u64(&tail) != value_hash(secret, value, bytes, item->key, item->key_bytes))
        return lig_fail(LIG_E_CORRUPT, "a record in table %u of the catalog is damaged", table);
    *reader = (ligi_reader){.data = value, .bytes = bytes, .at = 1};
    return LIG_OK;
}

static lig_status value_close(const ligi_reader *reader, const char *what)
{
    if (reader->failed || reader->at != reader->bytes)
        return lig_fail(LIG_E_CORRUPT, "%s in the catalog has the wrong length", what);
    return LIG_OK;
}

void ligi_header_put(ligi_writer *writer, const ligi_header *header)
{
    ligi_value_begin(writer);
    ligi_put_bytes(writer, magic, sizeof magic);
    ligi_put_bytes(writer, header->uuid, sizeof header->uuid);
    ligi_put_bytes(writer, header->secret, sizeof header->secret);
    ligi_put_varint(writer, header->next_id);
    ligi_catalog_key key = ligi_catalog_key_header();
    ligi_value_end(writer, &key, NULL);
}

lig_status ligi_header_get(const lig_catalog_item *item, ligi_header *header)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, NULL, &reader));
    const void *found = ligi_get_bytes(&reader, sizeof magic);
    const void *uuid = ligi_get_bytes(&reader, sizeof header->uuid);
    const void *secret = ligi_get_bytes(&reader, sizeof header->secret);
    header->next_id = ligi_get_varint(&reader);
    LIG_TRY(value_close(&reader, "the header"));
    if (memcmp(found, magic, sizeof magic) != 0 || header->next_id == 0)
        return lig_fail(LIG_E_CORRUPT, "the catalog's header is not that of a store");
    memcpy(header->uuid, uuid, sizeof header->uuid);
    memcpy(header->secret, secret, sizeof header->secret);
    return LIG_OK;
}

void ligi_record_put(ligi_writer *writer, const ligi_record *record, const void *secret)
{
    ligi_value_begin(writer);
    ligi_about_put(writer, &record->about);
    ligi_put_varint(writer, record->tensor_count);
    ligi_put_varint(writer, record->bytes);
    ligi_put_varint(writer, record->own_bytes);
    ligi_put_varint(writer, record->pack);
    ligi_put_varint(writer, record->offset);
    ligi_put_varint(writer, record->manifest_bytes);
    ligi_put_u64(writer, record->manifest_hash);
    ligi_put_varint(writer, record->use_count);
    for (size_t i = 0; i < record->use_count; i++) {
        ligi_put_varint(writer, record->uses[i].pack);
        ligi_put_varint(writer, record->uses[i].tensors);
    }
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    ligi_value_end(writer, &key, secret);
}

static lig_status get_uses(ligi_reader *reader, ligi_record *record)
{
    size_t count = ligi_get_count(reader, USE_BYTES);
    LIG_TRY(ligi_calloc(&record->uses, count, sizeof *record->uses, "the packs of a model"));
    record->use_count = count;
    for (size_t i = 0; i < count; i++) {
        record->uses[i].pack = ligi_get_varint(reader);
        record->uses[i].tensors = ligi_get_varint(reader);
    }
    return LIG_OK;
}

lig_status ligi_record_get(const lig_catalog_item *item, const void *secret, ligi_record *record)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    LIG_TRY(ligi_about_get(&reader, &record->about));
    record->tensor_count = ligi_get_varint(&reader);
    record->bytes = ligi_get_varint(&reader);
    record->own_bytes = ligi_get_varint(&reader);
    record->pack = ligi_get_varint(&reader);
    record->offset = ligi_get_varint(&reader);
    record->manifest_bytes = ligi_get_varint(&reader);
    record->manifest_hash = ligi_get_u64(&reader);
    LIG_TRY(get_uses(&reader, record));
    LIG_TRY(value_close(&reader, "a model's record"));
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    if (item->key_bytes != key.size || memcmp(item->key, key.bytes, key.size) != 0)
        return lig_fail(LIG_E_CORRUPT,
                        "the record of model '%s' is stored under the key of another model",
                        record->about.name);
    return LIG_OK;
}

void ligi_record_fini(ligi_record *record)
{
    ligi_about_fini(&record->about);
    free(record->uses);
    record->uses = NULL;
}

lig_status ligi_record_use(ligi_record *record, size_t *capacity, uint64_t pack, uint64_t tensors)
{
    /* Tensors of one pack mostly follow each other: the last one is looked at first. */
    for (size_t i = record->use_count; i-- > 0;)
        if (record->uses[i].pack == pack) {
            record->uses[i].tensors += tensors;
            return LIG_OK;
        }
    LIG_TRY(ligi_grow(&record->uses, capacity, record->use_count + 1, sizeof *record->uses,
                      "the packs of a model"));
    record->uses[record->use_count++] = (ligi_use){.pack = pack, .tensors = tensors};
    return LIG_OK;
}

lig_status ligi_record_of(const ligi_manifest *manifest, const ligi_record *place,
                          ligi_record *record)
{
    size_t capacity = 0;
    *record = *place;
    record->about = manifest->about;
    record->tensor_count = manifest->shown_count;
    record->bytes = record->own_bytes = 0;
    record->uses = NULL;
    record->use_count = 0;
    if (record->pack)
        LIG_TRY(ligi_record_use(record, &capacity, record->pack, 0));
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &manifest->tensors[i];
        if (stored->tied >= 0)
            continue;
        record->bytes += stored->tensor.bytes;
        if (stored->owner == record->about.id)
            record->own_bytes += stored->tensor.bytes;
        if (stored->pack && stored->tensor.bytes)
            LIG_TRY(ligi_record_use(record, &capacity, stored->pack, 1));
    }
    return LIG_OK;
}

void ligi_pack_record_put(ligi_writer *writer, uint64_t pack, const ligi_pack_record *record,
                          const void *secret)
{
    ligi_value_begin(writer);
    ligi_put_varint(writer, record->models);
    ligi_put_varint(writer, record->tensors);
    ligi_put_varint(writer, record->bytes);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, pack);
    ligi_value_end(writer, &key, secret);
}

lig_status ligi_pack_record_get(const lig_catalog_item *item, const void *secret,
                                ligi_pack_record *record)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    record->models = ligi_get_varint(&reader);
    record->tensors = ligi_get_varint(&reader);
    record->bytes = ligi_get_varint(&reader);
    return value_close(&reader, "a pack's record");
}

void ligi_catalog_name_put(ligi_writer *writer, const ligi_catalog_key *key, uint64_t id,
                           const void *secret)
{
    ligi_value_begin(writer);
    ligi_put_varint(writer, id);
    ligi_value_end(writer, key, secret);
}

lig_status ligi_catalog_name_get(const lig_catalog_item *item, const void *secret, uint64_t *id)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    *id = ligi_get_varint(&reader);
    return value_close(&reader, "a name");
}

void ligi_alias_put(ligi_writer *writer, const ligi_catalog_key *key, const char *alias,
                    uint64_t id, const void *secret)
{
    ligi_value_begin(writer);
    ligi_put_text(writer, alias);
    ligi_put_varint(writer, id);
    ligi_value_end(writer, key, secret);
}

lig_status ligi_alias_get(const lig_catalog_item *item, const void *secret, const char **alias,
                          uint64_t *id)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    *alias = ligi_get_text(&reader, LIG_NAME_BYTES_MAX);
    *id = ligi_get_varint(&reader);
    return value_close(&reader, "an alias");
}

void ligi_inline_put(ligi_writer *writer, uint64_t id, const ligi_inline *inlined,
                     const void *secret)
{
    ligi_value_begin(writer);
    ligi_put_varint(writer, inlined->manifest_bytes);
    ligi_put_bytes(writer, inlined->manifest, inlined->manifest_bytes);
    ligi_put_bytes(writer, inlined->data, inlined->data_bytes);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, id);
    ligi_value_end(writer, &key, secret);
}

lig_status ligi_inline_get(const lig_catalog_item *item, const void *secret, ligi_inline *inlined)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    inlined->manifest_bytes = ligi_get_count(&reader, 1);
    inlined->manifest = ligi_get_bytes(&reader, inlined->manifest_bytes);
    inlined->data_bytes = reader.bytes - reader.at;
    inlined->data = ligi_get_bytes(&reader, inlined->data_bytes);
    return value_close(&reader, "an inline model");
}
