#include "store/catalog/fingerprint_index.h"

#include "base/error.h"

#include <string.h>

enum { PREFIX_BYTES = 9 };

ligi_hash128 ligi_fingerprint(const void *secret, const uint64_t *hashes, uint64_t bytes)
{
    return ligi_hash128_keyed(secret, hashes, ligi_block_count(bytes) * sizeof *hashes);
}

ligi_key ligi_origin_prefix(const ligi_origin *origin)
{
    ligi_key key = {.bytes = {LIGI_TABLE_FINGERPRINT}, .size = PREFIX_BYTES};
    uint64_t parts[2] = {origin->first, origin->bytes};
    ligi_store_be64(key.bytes + 1, ligi_hash64_plain(parts, sizeof parts));
    return key;
}

ligi_key ligi_origin_key(const ligi_origin *origin)
{
    ligi_key key = ligi_origin_prefix(origin);
    ligi_store_be64(key.bytes + PREFIX_BYTES, origin->print.low);
    key.size = PREFIX_BYTES + 8;
    return key;
}

void ligi_origin_put(ligi_writer *writer, const ligi_origin *origin, const void *secret)
{
    ligi_key key = ligi_origin_key(origin);
    ligi_value_begin(writer);
    ligi_put_u64(writer, origin->print.high);
    ligi_put_varint(writer, origin->bytes);
    ligi_put_varint(writer, origin->owner);
    ligi_put_varint(writer, origin->pack);
    ligi_put_varint(writer, origin->offset);
    ligi_value_end(writer, &key, secret);
}

lig_status ligi_origin_get(const lig_catalog_item *item, const void *secret, ligi_origin *origin)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    origin->print.high = ligi_get_u64(&reader);
    origin->bytes = ligi_get_varint(&reader);
    origin->owner = ligi_get_varint(&reader);
    origin->pack = ligi_get_varint(&reader);
    origin->offset = ligi_get_varint(&reader);
    if (reader.failed || reader.at != reader.bytes || item->key_bytes != PREFIX_BYTES + 8 ||
        origin->pack == 0 || origin->owner == 0)
        return lig_fail(LIG_E_CORRUPT, "a fingerprint in the catalog makes no sense");
    origin->print.low = ligi_load_be64((const uint8_t *)item->key + PREFIX_BYTES);
    return LIG_OK;
}

int ligi_origin_of(const ligi_manifest *manifest, size_t index, const void *secret,
                   ligi_origin *origin)
{
    const lig_stored_tensor *stored = &manifest->tensors[index];
    if (stored->tied >= 0 || stored->pack == 0 || stored->tensor.bytes < LIGI_ORIGIN_BYTES)
        return 0;
    const uint64_t *hashes = manifest->hashes[index];
    *origin = (ligi_origin){.first = hashes[0],
                            .print = ligi_fingerprint(secret, hashes, stored->tensor.bytes),
                            .bytes = stored->tensor.bytes,
                            .pack = stored->pack,
                            .offset = stored->offset,
                            .owner = stored->owner};
    return 1;
}
