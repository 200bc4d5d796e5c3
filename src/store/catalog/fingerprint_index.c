#include "store/catalog/fingerprint_index.h"

#include "base/error.h"

enum { PREFIX_BYTES = 9 };

ligi_hash128 ligi_fingerprint(const void *secret, const uint64_t *hashes, uint64_t bytes)
{
    return ligi_hash128_keyed(secret, hashes, ligi_manifest_block_count(bytes) * sizeof *hashes);
}

ligi_catalog_key ligi_fingerprint_prefix(const ligi_fingerprint_entry *fingerprint)
{
    ligi_catalog_key key = {.bytes = {LIGI_TABLE_FINGERPRINT}, .size = PREFIX_BYTES};
    uint64_t parts[2] = {fingerprint->first, fingerprint->bytes};
    ligi_put_be64(key.bytes + 1, ligi_hash64_plain(parts, sizeof parts));
    return key;
}

ligi_catalog_key ligi_fingerprint_key(const ligi_fingerprint_entry *fingerprint)
{
    ligi_catalog_key key = ligi_fingerprint_prefix(fingerprint);
    ligi_put_be64(key.bytes + PREFIX_BYTES, fingerprint->print.low);
    key.size = PREFIX_BYTES + 8;
    return key;
}

void ligi_fingerprint_put(ligi_writer *writer, const ligi_fingerprint_entry *fingerprint,
                          const void *secret)
{
    ligi_catalog_key key = ligi_fingerprint_key(fingerprint);
    ligi_value_begin(writer);
    ligi_put_u64(writer, fingerprint->print.high);
    ligi_put_varint(writer, fingerprint->bytes);
    ligi_put_varint(writer, fingerprint->owner);
    ligi_put_varint(writer, fingerprint->pack);
    ligi_put_varint(writer, fingerprint->offset);
    ligi_value_end(writer, &key, secret);
}

lig_status ligi_fingerprint_get(const lig_catalog_item *item, const void *secret,
                                ligi_fingerprint_entry *fingerprint)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    fingerprint->print.high = ligi_get_u64(&reader);
    fingerprint->bytes = ligi_get_varint(&reader);
    fingerprint->owner = ligi_get_varint(&reader);
    fingerprint->pack = ligi_get_varint(&reader);
    fingerprint->offset = ligi_get_varint(&reader);
    if (reader.failed || reader.at != reader.bytes || item->key_bytes != PREFIX_BYTES + 8 ||
        fingerprint->pack == 0 || fingerprint->owner == 0)
        return lig_fail(LIG_E_CORRUPT, "the catalog contains an invalid fingerprint");
    fingerprint->print.low = ligi_get_be64((const uint8_t *)item->key + PREFIX_BYTES);
    return LIG_OK;
}

int ligi_fingerprint_of(const ligi_manifest *manifest, size_t index, const void *secret,
                        ligi_fingerprint_entry *fingerprint)
{
    const lig_stored_tensor *stored = &manifest->tensors[index];
    if (stored->tied >= 0 || stored->pack == 0 || stored->tensor.bytes < LIGI_FINGERPRINT_MIN_BYTES)
        return 0;
    const uint64_t *hashes = manifest->hashes[index];
    *fingerprint =
        (ligi_fingerprint_entry){.first = hashes[0],
                                 .print = ligi_fingerprint(secret, hashes, stored->tensor.bytes),
                                 .bytes = stored->tensor.bytes,
                                 .pack = stored->pack,
                                 .offset = stored->offset,
                                 .owner = stored->owner};
    return 1;
}
