/* Values of the catalog, hostile but for their hash: what a reader meets when somebody writes one
 * on purpose. */
#include "store/catalog/commit_event.h"
#include "store/catalog/fingerprint_index.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[LIG_SECRET_BYTES] = {7};

static void decode(const lig_catalog_item *item)
{
    ligi_record record = {0};
    ligi_pack_record pack;
    ligi_header header;
    ligi_fingerprint_entry fingerprint;
    ligi_inline inlined;
    const char *alias;
    uint64_t id;
    (void)ligi_record_get(item, secret, &record);
    ligi_record_fini(&record);
    (void)ligi_pack_record_get(item, secret, &pack);
    (void)ligi_catalog_name_get(item, secret, &id);
    (void)ligi_alias_get(item, secret, &alias, &id);
    (void)ligi_header_get(item, &header);
    (void)ligi_fingerprint_get(item, secret, &fingerprint);
    if (ligi_inline_get(item, secret, &inlined) == LIG_OK) {
        ligi_manifest manifest = {0};
        (void)ligi_manifest_get(inlined.manifest, inlined.manifest_bytes, 0, &manifest);
        ligi_manifest_fini(&manifest);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, size ? data[0] : 0);
    lig_event event;
    (void)ligi_event_get(data, size, &event);
    ligi_writer value = {0};
    ligi_value_begin(&value);
    ligi_put_bytes(&value, data, size);
    ligi_value_end(&value, &key, secret);
    lig_catalog_item item = {key.bytes, key.size, value.data, value.bytes};
    if (value.status == LIG_OK)
        decode(&item);
    value.bytes = 0; /* the header's hash has no key */
    ligi_value_begin(&value);
    ligi_put_bytes(&value, data, size);
    ligi_value_end(&value, &key, NULL);
    item.value = value.data;
    item.value_bytes = value.bytes;
    if (value.status == LIG_OK)
        decode(&item);
    ligi_writer_fini(&value);
    return 0;
}
